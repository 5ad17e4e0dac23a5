"""How an answer's text is compared with the reference answer.

Always true: a score is from 0 to 1, and all but `f1` give one of the two; text that cannot be read as an answer scores
0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from vime_train.data._errors import DataError
from vime_train.plugins import Contract, load

_CONTRACT = Contract(key="data.options.score", positional=("answer", "reference"), returns="float")
_ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHOSEN = r"\\boxed\{|\(|\b[Aa]nswer(?: is)?:? *\(?"
_ALONE = r"^\s*(?=[A-Z](?:[).:]|\s*$))"
_CHOICE = re.compile(rf"(?:{_CHOSEN}|{_ALONE})([A-Z])(?![\w'])", re.MULTILINE)
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


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of the words, aside from case, punctuation and articles (SQuAD).

    Source: arXiv:1606.05250, 6.1.

    >>> f1("The cat sat.", "a cat sat down"), f1("cat", "dog")
    (0.8, 0.0)
    """
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return float(given == wanted)
    return 2 * (given & wanted).total() / (given.total() + wanted.total())


def choice(answer: str, reference: str) -> bool:
    r"""Whether the letter that the answer chooses last is the reference.

    A letter is chosen in `\boxed{C}`, in `(C)`, after "answer is" or "Answer:", as in "C. Paris", or alone on its line.

    >>> choice("Not (A), so the answer is (C).", "C"), choice("A guess", "A"), choice("B. Paris", "b")
    (True, False, True)
    """
    chosen = _CHOICE.findall(answer)
    return bool(chosen) and chosen[-1] == reference.strip().strip("()").upper()


SCORES: Mapping[str, Callable[[str, str], float]] = {
    "exact": exact,
    "last_number": last_number,
    "math": math,
    "f1": f1,
    "choice": choice,
}


def score_function(name: str) -> Callable[[str, str], float]:
    """The comparison of that name, or the one at an import path `package.module:name`.

    Raises:
        DataError: if there is none of that name, or its library is not installed.
        PluginError: if the import path leads nowhere, or to something that does not take `(answer, reference)`.
    """
    if ":" in name:
        return load(name, _CONTRACT)
    if name not in SCORES:
        raise DataError(f"score = {name!r}: one of {', '.join(SCORES)} is needed, or an import path.")
    if name == "math" and find_spec("math_verify") is None:
        raise DataError('score = "math" needs math-verify: python -m pip install "vime-train[math]".')
    return SCORES[name]


def _words(text: str) -> Counter[str]:
    words = text.lower().translate(_NO_PUNCTUATION).split()
    return Counter(word for word in words if word not in _ARTICLES)


def _value(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text
