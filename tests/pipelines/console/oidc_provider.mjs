// An identity provider on loopback: node oidc_provider.mjs MODULE SETTINGS
// It prints its issuer. SETTINGS is JSON: client, secret, redirect, claims of the only person, and
// whether the ID token has them or only the userinfo endpoint.
import { createServer } from "node:http";

const { Provider } = await import(process.argv[2]);
const settings = JSON.parse(process.argv[3]);
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    claims: { openid: ["sub"], email: ["email"], profile: ["groups"] },
    clients: [
      {
        client_id: settings.client,
        client_secret: settings.secret,
        redirect_uris: [settings.redirect],
      },
    ],
    conformIdTokenClaims: !settings.claims_in_token,
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...settings.claims }) }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
