"""How an answer's text is compared with the reference answer.

Always true: a score is 0 or 1; text that cannot be read as an answer scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from vime_train.data._errors import DataError

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def exact(answer: str, reference: str) -> bool:
    """Whether the texts are equal but for white space around them."""
    return answer.strip() == reference.strip()


def last_number(answer: str, reference: str) -> bool:
    """Whether the last number in the answer is the reference.

    >>> last_number("3 + 4 = 7.", "7"), last_number("1,000 or 1,200", "1200"), last_number("seven", "7")
    (True, True, False)
    """
    numbers = _NUMBER.findall(answer)
    return bool(numbers) and _value(numbers[-1]) == _value(reference)


def math(answer: str, reference: str) -> bool:
    r"""Whether the answer is mathematically the reference, by math-verify.

    >>> math(r"So it is \boxed{\frac{1}{2}}.", "0.5")
    True
    """
    from math_verify import parse, verify

    return bool(verify(parse(reference), parse(answer)))


SCORES: Mapping[str, Callable[[str, str], bool]] = {"exact": exact, "last_number": last_number, "math": math}


def score_function(name: str) -> Callable[[str, str], bool]:
    """The comparison of that name.

    Raises:
        DataError: if there is none, or its library is not installed.
    """
    if name not in SCORES:
        raise DataError(f"score = {name!r}: one of {', '.join(SCORES)} is needed.")
    if name == "math" and find_spec("math_verify") is None:
        raise DataError('score = "math" needs math-verify: python -m pip install "vime-train[math]".')
    return SCORES[name]


def _value(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text
