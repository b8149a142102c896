"""What must not become a fact: secrets, and wishes for one occasion. A program decides, not an instruction."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

from tenuto.errors import FactRefused

_CARD = re.compile(r"(?<![0-9])[0-9](?:[ -]?[0-9]){12,18}(?![0-9])")
_PASSWORD = re.compile(
    r"(pass(word|phrase|code)|\bpin\b|secret|api[ _-]?key|access[ _-]?token|\btoken\b|credential)s?\b\W{0,3}"
    r"(is|are|was|:|=|->)\W{0,3}\S+"
    r"|(密码|口令|密钥|令牌|验证码)[^\w]{0,3}(是|为|:|：|=)\W{0,3}\S+",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_ONCE = re.compile(
    r"\b(this time|just this once|only (?:for )?(?:today|now)|for (?:now|today)|in this (?:chat|conversation|thread|"
    r"report|chart|answer|turn)|for this (?:chat|conversation|thread|report|chart|answer|turn|one))\b"
    r"|这次|本次|这一次|此次|这一回|今天(?:先|就)|暂时|先这样|(?:这|本)(?:个|张|份)?(?:会话|对话|图|图表|报告|回答)",
    re.IGNORECASE,
)

PLUGINS = (
    "ArtifactoryDetector AWSKeyDetector AzureStorageKeyDetector BasicAuthDetector CloudantDetector "
    "DiscordBotTokenDetector GitHubTokenDetector GitLabTokenDetector IbmCloudIamDetector JwtTokenDetector "
    "KeywordDetector MailchimpDetector NpmDetector OpenAIDetector PrivateKeyDetector PypiTokenDetector "
    "SendGridDetector SlackDetector SoftlayerDetector SquareOAuthDetector StripeDetector "
    "TelegramBotTokenDetector TwilioKeyDetector"
)
"""The detect-secrets plugins that look at one line of plain text."""


@cache
def _plugins() -> list[Any]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    wanted = set(PLUGINS.split())
    return [kind() for kind in get_mapping_from_secret_type_to_class().values() if kind.__name__ in wanted]


def secret_in(text: str) -> str:
    """What kind of secret `text` holds, empty for none. O(text)."""
    if _PASSWORD.search(text):
        return "a password or token"
    for match in _CARD.finditer(text):
        if _luhn([int(char) for char in match[0] if char.isdigit()]):
            return "a card number"
    for match in _RANDOM.finditer(text):
        if _looks_random(match[0]):
            return "a key"
    for line in text.splitlines():
        for plugin in _plugins():
            if any(True for _ in plugin.analyze_string(line)):
                return str(plugin.secret_type).lower()
    return ""


def _luhn(digits: list[int]) -> bool:
    doubled = [
        digit if at % 2 == 0 else sum(divmod(digit * 2, 10)) for at, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _looks_random(text: str) -> bool:
    kinds = [any(map(test, text)) for test in (str.isdigit, str.isupper, str.islower)]
    changes = sum(a.isdigit() != b.isdigit() for a, b in pairwise(text))
    return all(kinds) and changes >= 4


def for_once(text: str) -> bool:
    """Whether `text` speaks of one occasion only ("this time", "这次")."""
    return bool(_ONCE.search(text))


def check(text: str, quote: str = "") -> None:
    """Raise `FactRefused` for what must not be remembered. The message never repeats the text."""
    if kind := secret_in(text) or secret_in(quote):
        raise FactRefused(
            f"this looks like {kind} and is not remembered", hint="keep secrets in a password manager"
        )
    if for_once(text) or for_once(quote):
        raise FactRefused(
            "this is a wish for one occasion, not a lasting fact",
            hint="say it without 'this time' to keep it",
        )
