"""Tests of tokens and roles."""

from __future__ import annotations

import pytest

from forewarn.pipelines.incidents.api.access_control import Role, new_token, parse_access
from forewarn.pipelines.serving.tokens import TokenError


def test_new_token_matches_its_digest_only() -> None:
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


def test_roles_include_lower_roles_except_report() -> None:
    order = [Role.SEE, Role.APPROVE, Role.ACT, Role.ADMIN]
    for number, role in enumerate(order):
        assert [role.includes(other) for other in order] == [
            index <= number for index in range(len(order))
        ]
    assert [role for role in Role if role.includes(Role.REPORT)] == ["report", "act", "admin"]
    assert [role for role in Role if Role.REPORT.includes(role)] == ["report"]


def test_name_can_have_two_tokens() -> None:
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
        (f"ann:act={'0' * 64},bob:see={'0' * 64}", "entry 2 repeats the digest of another"),
        (f"ann:act={'0' * 64},ann:see={'1' * 64}", "entry 2 gives 'ann' a second role"),
    ],
)
def test_invalid_token_entries_are_not_printed(text: str, why: str) -> None:
    with pytest.raises(TokenError, match=why) as caught:
        parse_access(text)
    assert "FOREWARN_RESPOND_TOKENS" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
