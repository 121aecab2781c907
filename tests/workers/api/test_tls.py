"""A server behind TLS, with a certificate of an authority that is nobody's but its operator's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme

from tests.waiting import TIMEOUT
from tests.workers.api.conftest import FarCli, standing
from tocsin.broker.errors import InvalidInput
from tocsin.broker.signals import Signal
from tocsin.workers.hosts.connecting import program
from tocsin.workers.hosts.round_trip import round_trip
from tocsin.workers.remote import Remote

SCOUT = "release-42/scout"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The certificate of an authority, which has certified a server on loopback."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "server.pem")
    )
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return tmp_path / "authority.pem"


@pytest.fixture
def address(url, fleet_name, authority):
    """The address of a server of the test's fleet, with that certificate."""
    with standing(url, fleet_name, authority.with_name("server.pem")) as base:
        assert base.startswith("https://")
        yield base


def test_an_authority_of_ones_own(cli: FarCli, address, authority, monkeypatch):
    """Named in SSL_CERT_FILE it is trusted: commands work, one that waits and a bell, too."""
    cli.variables["SSL_CERT_FILE"] = str(authority)
    cli.staff("scout")
    task = cli.working()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    line = Remote(address, "release-42", "scout", cli.token(SCOUT))
    try:
        signal, scout = Signal(), line.join()
        with scout.hear_arrivals(signal):
            while signal.wait(0.5):  # what came before the server listened is looked for
                signal.clear()
            waiting = cli.start("ask", "scout", "Which branch?", "--json")
            assert signal.wait(TIMEOUT)
        [question] = [each for each in scout.inbox() if each.expects_reply]
        cli.good("reply", question.message_id, "main", "--seat", SCOUT)
        said, _ = waiting.communicate(timeout=TIMEOUT)
    finally:
        line.close()
    assert json.loads(said)["body"] == "main"
    cli.good("done", task, "completed", "--summary", "JWT", "--seat", SCOUT)


def test_a_host_behind_it(cli: FarCli, address, authority, monkeypatch):
    """What `connect` writes names the authority, too, and so a host with no variables gets in."""
    monkeypatch.chdir(cli.home)
    cli.variables["SSL_CERT_FILE"] = str(authority)
    cli.staff("scout")
    told = cli.json("connect", "claude-code", "--seat", SCOUT, PATH=str(cli.home))
    assert told["checks"][0]["ok"], told
    [written] = [Path(each) for each in told["files"] if each.endswith(".mcp.json")]
    env = json.loads(written.read_text())["mcpServers"]["tocsin"]["env"]
    assert (env["TOCSIN_URL"], env["SSL_CERT_FILE"]) == (address, str(authority))
    env["SSL_CERT_FILE"] = ""
    with pytest.raises(InvalidInput, match="does not prove who it is .* in SSL_CERT_FILE"):
        round_trip([program(), "mcp"], env)


def test_a_certificate_that_nobody_vouches_for(cli: FarCli, address):
    """It is refused at once, in one line that says what to do, and no token is sent."""
    token = "tok_" + "x" * 43
    seat = {"TOCSIN_SEAT": SCOUT, "TOCSIN_TOKEN": token}
    refused = cli.run("inbox", **seat)
    assert refused.exit_code == 69 and len(refused.stderr.splitlines()) == 1, refused.output
    assert f"{address} does not prove who it is (unable to get" in refused.stderr
    assert "SSL_CERT_FILE" in refused.stderr and token not in refused.output
