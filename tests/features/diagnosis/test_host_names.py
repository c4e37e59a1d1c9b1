from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.log_streams.file_numbers import machine_of_path
from forewarn.features.diagnosis.ranks import Rank, Ranks

OCTETS = st.tuples(*[st.integers(1, 254)] * 4)
NAMES = st.from_regex(r"[a-z]{2,8}-[0-9]{1,3}", fullmatch=True)
DOMAINS = st.sampled_from(["", ".", ".cluster.local", ".eu-1.compute.internal"])
WRAPS = st.sampled_from(["{}", "[{}]", "{}<40123>", "[{}]<1>"])


@given(NAMES, DOMAINS, WRAPS)
def test_forms_of_a_name_are_equal(name: str, domain: str, wrap: str) -> None:
    assert host_key(wrap.format(name + domain)) == host_key(name.upper()) == name


@given(OCTETS, DOMAINS, WRAPS, st.sampled_from(["ip-", ""]))
def test_cloud_name_is_its_address(
    octets: tuple[int, ...], domain: str, wrap: str, prefix: str
) -> None:
    address = ".".join(map(str, octets))
    cloud = prefix + "-".join(map(str, octets))
    assert host_key(wrap.format(cloud + domain)) == host_key(address) == address
    ranks = Ranks({0: Rank(0, cloud), 1: Rank(1, "node-1")})
    assert ranks.machine_named(address) == cloud
    assert machine_of_path(f"logs/{cloud}.log", {host_key(address)}) == cloud


@given(NAMES, NAMES, DOMAINS)
def test_other_names_are_other_hosts(a: str, b: str, domain: str) -> None:
    assert (host_key(a + domain) == host_key(b)) == (a == b)


@pytest.mark.parametrize("host", ["10.0.0.9", "ip-10-0-0-9.internal", "10.0.0.40"])
def test_other_address_is_no_machine(host: str) -> None:
    assert Ranks({0: Rank(0, "10.0.0.4")}).machine_named(host) is None
