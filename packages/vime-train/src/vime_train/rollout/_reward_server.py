"""Rewards from a server: one HTTP POST per problem, with a time limit and retries.

The request is `{"problem_id", "prompt", "reference", "metadata", "answers": [{"text", "finished"}]}`, the response
`{"rewards": [number, ...]}`. The token in the environment variable VIME_REWARD_TOKEN, if there is one, goes along as
`Authorization: Bearer`.

Always true: a server that is down, slow or busy (429, 5xx) is asked again, `attempts` times in all, with pauses that
double; any other answer that is not the rewards is an error at once, with what was answered. No attempt takes longer
than the time limit, however slowly a server sends, and none reads more than `MAX_ANSWER_BYTES`.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit

from vime_train.rollout._threads import within

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.rollout._rewards import Answer
    from vime_train.rollout._samples import Problem

TOKEN_VARIABLE = "VIME_REWARD_TOKEN"
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * 2**20
_AGAIN = (429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class RewardServerError(RuntimeError):
    """The server did not give the rewards: its address, how often it was asked, and what came back."""


class RewardServer:
    """Asks the server of `rollout.reward_url`."""

    def __init__(self, url: str, section: RolloutSection) -> None:
        self._url = url
        self._timeout = section.reward_timeout_seconds
        self._attempts = section.reward_attempts
        # a proxy knows no way back to this machine
        proxies = [urllib.request.ProxyHandler({})] if urlsplit(url).hostname in _LOOPBACK else []
        self._opener = urllib.request.build_opener(*proxies)

    def __call__(self, problem: Problem, answers: Sequence[Answer]) -> object:
        """What the server answers for `rewards`; not yet checked."""
        body = json.dumps(
            {
                "problem_id": problem.problem_id,
                "prompt": problem.prompt,
                "reference": problem.answer,
                "metadata": problem.metadata,
                "answers": [{"text": answer.text, "finished": answer.finished} for answer in answers],
            }
        ).encode()
        text = self._ask(body)
        try:
            response = json.loads(text)
        except ValueError as error:
            raise RewardServerError(f"{self._url} answered {_short(text)}, which is not JSON") from error
        if not isinstance(response, dict) or "rewards" not in response:
            raise RewardServerError(f'{self._url} answered {_short(text)}; {{"rewards": [...]}} is needed')
        return response["rewards"]

    def _ask(self, body: bytes) -> bytes:
        pause, failure = FIRST_PAUSE_SECONDS, ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                return within(self._timeout, lambda: self._post(body))
            except HTTPError as error:
                failure = f"HTTP {error.code} {_short(error.read())}"
                if error.code not in _AGAIN:
                    raise RewardServerError(f"{self._url} answered {failure}") from error
            except (OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
        raise RewardServerError(
            f"{self._url} gave no rewards in {self._attempts} attempts of {self._timeout:g} s each, at last: {failure}"
        )

    def _post(self, body: bytes) -> bytes:
        with self._opener.open(self._request(body), timeout=self._timeout) as response:
            text = bytes(response.read(MAX_ANSWER_BYTES + 1))
        if len(text) > MAX_ANSWER_BYTES:
            raise RewardServerError(f"{self._url} answered more than {MAX_ANSWER_BYTES} bytes: {_short(text[:200])}")
        return text

    def _request(self, body: bytes) -> urllib.request.Request:
        headers = {"Content-Type": "application/json"}
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return urllib.request.Request(self._url, data=body, headers=headers)


def _short(text: bytes) -> str:
    shown = text.decode("utf-8", errors="replace")
    return repr(shown if len(shown) <= 120 else f"{shown[:117]}...")
