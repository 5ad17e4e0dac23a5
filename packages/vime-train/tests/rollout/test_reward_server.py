"""Rewards over HTTP, against a real server on loopback: down, slow, busy, and answering nonsense."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vime_train.config import ConfigError, RolloutSection, RunConfig, load_config
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Answer, Collector, Problem, RewardError, load_reward

SOURCE = ArithmeticSums()
PROBLEM = Problem(problem_id="p1", prompt="a7b6=", answer="13", prompt_tokens=(2,), metadata={"terms": 2})
ANSWERS = [Answer(text="#13", finished=True), Answer(text="#1", finished=False)]
Respond = Callable[[dict[str, Any], int], tuple[int, bytes]]


class Server:
    """A server whose every answer is `respond(request, number of the request)`."""

    def __init__(self, respond: Respond) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self._now = 0
        lock, server = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    server.requests.append(body)
                    server.headers.append(dict(self.headers))
                    number = len(server.requests)
                    server._now += 1
                    server.most_at_once = max(server.most_at_once, server._now)
                code, content = respond(body, number)
                with lock:
                    server._now -= 1
                with contextlib.suppress(BrokenPipeError):  # who asked may have gone by now
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *values: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/reward"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Respond], Server]]:
    servers: list[Server] = []

    def start(respond: Respond) -> Server:
        servers.append(Server(respond))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def ok(*rewards: float) -> tuple[int, bytes]:
    return 200, json.dumps({"rewards": list(rewards)}).encode()


def section(url: str, **options: Any) -> RolloutSection:
    return RolloutSection(reward_url=url, **{"reward_timeout_seconds": 5.0, "reward_attempts": 3} | options)


def ask(url: str, **options: Any) -> list[float]:
    return [reward.value for reward in load_reward(section(url, **options), SOURCE)(PROBLEM, ANSWERS)]


def test_the_server_is_told_everything_and_its_rewards_are_taken(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIME_REWARD_TOKEN", "secret")
    server = serve(lambda request, number: ok(1, 0.25))
    assert ask(server.url) == [1.0, 0.25]
    assert server.requests == [
        {
            "problem_id": "p1",
            "prompt": "a7b6=",
            "reference": "13",
            "metadata": {"terms": 2},
            "answers": [{"text": "#13", "finished": True}, {"text": "#1", "finished": False}],
        }
    ]
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_a_server_may_answer_with_mappings(serve: Any) -> None:
    judged = {"rewards": [{"right": 1, "style": 0.5}, {"right": 0, "style": 1.0}]}
    server = serve(lambda request, number: (200, json.dumps(judged).encode()))
    rewards = load_reward(section(server.url, reward_key="right"), SOURCE)(PROBLEM, ANSWERS)
    assert [(reward.value, dict(reward.parts)) for reward in rewards] == [(1.0, {"style": 0.5}), (0.0, {"style": 1.0})]


def test_without_a_token_none_is_sent(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIME_REWARD_TOKEN", raising=False)
    server = serve(lambda request, number: ok(1, 0))
    ask(server.url)
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_asked_again(serve: Any, code: int) -> None:
    server = serve(lambda request, number: ok(1, 0) if number == 3 else (code, b"later"))
    assert ask(server.url) == [1.0, 0.0]
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_an_error_with_its_last_answer(serve: Any) -> None:
    server = serve(lambda request, number: (503, b"no capacity"))
    with pytest.raises(RewardError, match=r"no rewards in 2 attempts of 5 s each, at last: HTTP 503 'no capacity'"):
        ask(server.url, reward_attempts=2)
    assert len(server.requests) == 2


def test_a_slow_server_is_given_up_after_its_time(serve: Any) -> None:
    def slow(request: dict[str, Any], number: int) -> tuple[int, bytes]:
        time.sleep(1.0)
        return ok(1, 0)

    server = serve(slow)
    with pytest.raises(RewardError, match=r"no rewards in 2 attempts of 0\.1 s each, at last: .*timed out"):
        ask(server.url, reward_attempts=2, reward_timeout_seconds=0.1)


@pytest.fixture
def drip() -> Iterator[Callable[[bytes], str]]:
    """Servers that send a byte every 50 ms and never end: first these bytes, then white space."""
    sockets: list[socket.socket] = []

    def send(connection: socket.socket, begin: bytes) -> None:
        with contextlib.suppress(OSError), connection:
            for place in range(200):
                connection.sendall(begin[place : place + 1] or b" ")
                time.sleep(0.05)

    def serve(begin: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=send, args=(listener.accept()[0], begin), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/reward"

    yield serve
    for listener in sockets:
        listener.close()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_sends_without_end_is_given_up_after_its_time(drip: Callable[[bytes], str], begin: bytes) -> None:
    """Every byte comes in time; all of them together never do."""
    began = time.monotonic()
    with pytest.raises(RewardError, match=r"no rewards in 2 attempts of 0\.3 s each, at last: timed out"):
        ask(drip(begin), reward_attempts=2, reward_timeout_seconds=0.3)
    assert time.monotonic() - began < 8, "the server would have sent for ten seconds in each attempt"


def test_an_answer_without_end_is_refused(serve: Any) -> None:
    server = serve(lambda request, number: (200, b"[" + b"1," * 9 * 2**20))
    with pytest.raises(RewardError, match=r"answered more than 16777216 bytes: '\[1,1,"):
        ask(server.url, reward_timeout_seconds=30.0)
    assert len(server.requests) == 1


INTERRUPTED = """
import os, signal, sys, threading
from vime_train.config import RolloutSection
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Answer, load_reward
from vime_train.rollout._rewards import score_groups
section, source = RolloutSection(reward_url=sys.argv[1]), ArithmeticSums()
groups = [(problem, [Answer(text="#1", finished=True)]) for problem in source.problems(4, seed=0, start=0)]
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
score_groups(load_reward(section, source), groups, section)
"""


def test_ctrl_c_does_not_wait_for_a_server(serve: Any) -> None:
    """The program ends although four requests are under way, with 5 attempts of 30 s before them."""
    release = threading.Event()

    def hang(request: dict[str, Any], number: int) -> tuple[int, bytes]:
        release.wait(60)
        return ok(1)

    try:
        script = [sys.executable, "-c", INTERRUPTED, serve(hang).url]
        done = subprocess.run(script, capture_output=True, text=True, timeout=25, check=False)
    finally:
        release.set()
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr


def test_a_server_that_is_down_is_an_error_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/reward"
    with pytest.raises(RewardError, match=rf"rollout\.reward_url = '{url}' raised .* gave no rewards in 2 .*refused"):
        ask(url, reward_attempts=2)


def test_a_server_that_comes_back_is_enough(serve: Any) -> None:
    server = serve(lambda request, number: ok(1, 0) if number > 1 else (500, b""))
    assert ask(server.url) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ((200, b"<html>hello</html>"), r"answered '<html>hello</html>', which is not JSON"),
        ((200, b"\xff\xfe"), "which is not JSON"),
        ((200, b"[1, 2]"), r'answered .*; \{"rewards": \[\.\.\.\]\} is needed'),
        ((200, b'{"reward": 1}'), "is needed"),
        ((200, b'{"rewards": [1]}'), r"returned \[1\].*: 2 numbers are needed"),
        ((200, b'{"rewards": [1, "x"]}'), r"returned 'x'; given problem 'p1', answer '#1': a finite number"),
        ((200, b'{"rewards": [1, NaN]}'), r"returned nan; given problem 'p1'"),
        ((200, b'{"rewards": 3}'), "returned 3"),
        ((401, b"who are you?"), r"answered HTTP 401 'who are you\?'"),
        ((404, b""), "answered HTTP 404"),
    ],
)
def test_nonsense_is_an_error_at_once(serve: Any, response: tuple[int, bytes], message: str) -> None:
    server = serve(lambda request, number: response)
    with pytest.raises(RewardError, match=message):
        ask(server.url)
    assert len(server.requests) == 1


def test_a_batch_is_asked_for_at_once_and_keeps_its_order(
    serve: Any, scripted_engine: Any, small_run: Callable[..., RunConfig]
) -> None:
    def number_of_terms(request: dict[str, Any], number: int) -> tuple[int, bytes]:
        time.sleep(0.05)
        return ok(*[request["metadata"]["terms"]] * len(request["answers"]))

    server = serve(number_of_terms)
    config = small_run(f"rollout.reward_url={server.url}", "rollout.max_attempts=1", "rollout.reward_concurrency=3")
    rollouts = Collector(config, SOURCE).collect(scripted_engine(lambda *_: "#1")).rollouts
    assert [rollout.reward for rollout in rollouts] == [rollout.problem.metadata["terms"] for rollout in rollouts]
    assert len(server.requests) == 4
    assert 2 <= server.most_at_once <= 3


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "ftp://host/x"])
def test_an_address_that_is_not_http_is_refused_at_launch(url: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.reward_url"):
        load_config(overrides=[f"rollout.reward_url={url}"])
