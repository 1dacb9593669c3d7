"""What can go wrong, as a tree; the command line turns each into its exit code.

```
KvbudgetError            exit code
├── InputError           2   the input is wrong: what is wrong, what was seen, what to do
├── CannotTell           3   the input may be right but we do not know enough; names the key
└── AccessError          4   a hub, a network or a permission stood in the way
```

Every message is one sentence of the form: what is wrong, what was seen, what to do.
"""

from __future__ import annotations

from functools import partial


class KvbudgetError(Exception):
    """The root of all errors this package raises on purpose; its text is fit for a user."""

    exit_code = 2


class InputError(KvbudgetError, ValueError):
    """The input is wrong: a bad number, a broken file, contradictory keys."""


class CannotTell(KvbudgetError):  # noqa: N818 - it is a verdict before it is an error
    """The input may be right, but an answer would be a guess.

    Args:
        message: One sentence for the user.
        key: The config key (dotted path) that is unknown or missing.
    """

    exit_code = 3

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process makes it again."""
        return partial(CannotTell, key=self.key), self.args


class AccessError(KvbudgetError, OSError):
    """A hub, a network or a permission stood in the way."""

    exit_code = 4
