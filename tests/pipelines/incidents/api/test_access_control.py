"""Which tokens are taken, and what each of them is for."""

from __future__ import annotations

import pytest

from forewarn.pipelines.incidents.api.access_control import Role, new_token, parse_access
from forewarn.pipelines.serving.tokens import TokenError


def test_a_new_token_is_known_by_its_digest_alone() -> None:
    token, digest = new_token()
    other, _ = new_token()
    access = parse_access(f" ann:act={digest} ,\n bob:see={digest[::-1]}\n")
    holder = access.holder(token)
    assert holder is not None
    assert (holder.name, holder.role) == ("ann", Role.ACT)
    assert access.holder(other) is None
    assert access.holder(digest) is None
    assert access.holder("\udcff") is None
    assert len(token) > 40
    assert token not in digest


def test_each_role_includes_those_before_it_and_a_reporter_reads_nothing() -> None:
    ladder = [Role.SEE, Role.APPROVE, Role.ACT, Role.ADMIN]
    for number, role in enumerate(ladder):
        assert [role.includes(other) for other in ladder] == [
            place <= number for place in range(len(ladder))
        ]
    assert [role for role in Role if role.includes(Role.REPORT)] == ["report", "act", "admin"]
    assert [role for role in Role if Role.REPORT.includes(role)] == ["report"]


def test_a_name_can_have_two_tokens_while_they_are_changed() -> None:
    access = parse_access(f"ann:act={'0' * 64},ann:act={'1' * 64}")
    assert {holder.name for holder in access.holders.values()} == {"ann"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not set"),
        (" , ", "is not set"),
        ("secret", "role of entry 1"),
        ("ann=secret", "role"),
        ("ann:boss=" + "0" * 64, "role of entry 1"),
        ("ann:act=secret", "no SHA-256"),
        ("ann:act=" + "0" * 63, "no SHA-256"),
        ("ann:act=", "no SHA-256"),
        (":act=" + "0" * 64, "name of entry 1"),
        ("a<b:act=" + "0" * 64, "name of entry 1"),
        ("Forewarn:act=" + "0" * 64, "not 'forewarn'"),
        ("a" * 65 + ":act=" + "0" * 64, "name of entry 1"),
        (f"ann:act={'0' * 64},bob:see={'0' * 64}", "entry 2 has the digest of another"),
        (f"ann:act={'0' * 64},ann:see={'1' * 64}", "entry 2 gives 'ann' a second role"),
    ],
)
def test_tokens_that_cannot_be_used_are_named_and_not_printed(text: str, why: str) -> None:
    with pytest.raises(TokenError, match=why) as caught:
        parse_access(text)
    assert "FOREWARN_RESPOND_TOKENS" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
