"""Doxygen's view of include/bitexact.h, so that the header itself can stay short enough to be read in one go.

The header says each thing once; Doxygen wants it at every name. This filter repeats, line numbers kept:
- a comment above several prototypes, at each of them; what a parameter means wherever it has that name; the
  status that nearly every function returns;
- a comment on a line of several members, at each of them; members of the same name; strides;
- a text for function types, table members, initialisers and constants, whose names already say it.
What none of these rules covers stays undocumented, and Doxygen's warning about it is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Parameters that mean the same everywhere. @param in the header goes before.
COMMON_PARAMETERS = {
    "context": "From bitexact_context_create().",
    "params": "In: what to run. Not null; read before the function returns.",
    "reference": "In: the framework's own result. Not null; its tensors are read in stream order.",
    "stream": "Of the context's device; null is the default stream, and the only one of a host context.",
    "options": "The struct to initialise; null is ignored.",
    "info": "In and out: written up to its struct_size. Not null.",
    "report": "In and out: written up to its struct_size. Not null.",
    "rope": "In, may be null: a call of bitexact_fused_rope() to come.",
    "silu_mul": "In, may be null: a call of bitexact_fused_silu_mul() to come.",
    "status": "Any number.",
    "log": "The function, or null.",
}
PROTOTYPE = re.compile(r"^(BITEXACT_(?:EXPORT|CALL) (.+?)\b(bitexact_\w+)\(([^()]*)\)\s*BITEXACT_NOEXCEPT;)", re.M | re.S)
DOCUMENTED_PROTOTYPES = re.compile(r"^/\*\*(?P<text>(?:(?!\*/).)*)\*/\n(?P<code>(?:(?!\n\n).)*?;)(?=\n\n)", re.M | re.S)
STRUCT = re.compile(r"^typedef struct (bitexact_\w+) \{\n(.*?)^\} \1;", re.M | re.S)
MEMBERS = re.compile(r"^  ((?:const )?\w+\*? )(\w+(?:\[\d+\])?(?:, \w+)*);[ ]*(/\*\*<(?:(?!\*/).)*\*/)?$", re.M | re.S)


def flat(comment: str) -> str:
    return " ".join(line.strip().lstrip("*").strip() for line in comment.splitlines()).strip()


def described(prototype: re.Match[str], text: str) -> str:
    """One prototype behind its whole comment, on the line where it stands."""
    code, returns, _, parameters = prototype.groups()
    ending = re.search(r"\s*\[(any|object|alone)\] Since ([\d.]+)\.$", text)
    if ending:
        text = text[: ending.start()]
    added = ""
    for parameter in parameters.split(","):
        name = re.split(r"[\s*]+", parameter.strip())[-1]
        if name in COMMON_PARAMETERS and f"@param {name} " not in text:
            added += f" @param {name} {COMMON_PARAMETERS[name]}"
    before, at_return, returned = text.partition("@return")
    text = before.rstrip() + added + (f" {at_return}{returned}" if at_return else "")
    if "@return" not in text and returns.strip() == "int32_t":
        text += " @return 0 or a BITEXACT_STATUS value."
    elif "@return" not in text and not returns.startswith("void"):
        text += " @return As described."
    if ending:
        text += f" @remark Thread class: {ending[1]}. @since {ending[2]}"
    return f"/** {text} */ {code}"


def spread_over_prototypes(match: re.Match[str]) -> str:
    if not PROTOTYPE.match(match["code"]):
        return match[0]
    text = flat(match["text"])
    blank = "\n" * (match[0].count("\n") - match["code"].count("\n"))
    return blank + PROTOTYPE.sub(lambda prototype: described(prototype, text), match["code"])


def spread_over_members(struct: re.Match[str], documented: dict[str, str]) -> str:
    def each(match: re.Match[str]) -> str:
        kind, names, comment = match.groups()
        parts = []
        for name in names.split(", "):
            text = comment
            if kind.startswith("bitexact_") and kind.strip() == f"bitexact_{name}_fn":
                text = f"/**< bitexact_{name}(). */"
            elif text is None and name.endswith("_stride"):
                text = "/**< In elements. */"
            elif text is None and name in documented:
                text = f"/**< As in {documented[name]}. */"
            parts.append(f"{kind}{name}; {flat_comment(text)}".rstrip())
        return "  " + " ".join(parts) + "\n" * match[0].count("\n")

    return struct[0].replace(struct[2], MEMBERS.sub(each, struct[2]))


def flat_comment(comment: str | None) -> str:
    return "" if comment is None else f"/**< {flat(comment[4:-2])} */"


def documented_members(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for struct in STRUCT.finditer(text):
        for match in MEMBERS.finditer(struct[2]):
            if match[3] and "," not in match[2]:
                found.setdefault(match[2], struct[1])
    return found


def main() -> None:
    text = Path(sys.argv[1]).read_text()
    documented = documented_members(text)
    text = STRUCT.sub(lambda struct: spread_over_members(struct, documented), text)
    text = DOCUMENTED_PROTOTYPES.sub(spread_over_prototypes, text)
    text = re.sub(r"^(typedef .*?\(\*(bitexact_(?!log)\w+)_fn\))", r"/** Type of \2(). */ \1", text, flags=re.M)
    # A comment cannot stand before a #define on its line; @def names it from the end of the file.
    for name in re.findall(r"^#define (BITEXACT_\w+_INIT)\b", text, re.M):
        text += f"/** @def {name}\n * Zeros, and struct_size. */\n"
    for name, value in re.findall(r"^#define (BITEXACT_\w+) \(?(-?\d+u?)\)? *(?:/\*(?!\*).*\*/)?$", text, re.M):
        text += f"/** @def {name}\n * Is {value}. */\n"
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
