"""Writes standard.json: what the standard's own validator (skills-ref 0.1.1 of PyPI) says about generated skills.

    python3 -m venv VENV && VENV/bin/pip install skills-ref==0.1.1
    VENV/bin/python assets/tests/assets/standard.py > assets/tests/assets/standard.json
"""

import json
import pathlib
import tempfile

from skills_ref import validate

CASES = []


def case(kind, folder, text):
    CASES.append({"kind": kind, "folder": folder, "text": text})


def skill(name, description="Does it.", more=""):
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# Body\n"


NAMES = ["a", "pdf", "pdf-tools", "a-b-c", "x1", "1x", "123", "a" * 63, "a" * 64, "a" * 65, "über", "ß", "名前", "имя-2", "Pdf", "PDF", "pDf", "Ü",
         "-a", "a-", "-", "a--b", "a---b", "a_b", "a.b", "a,b", "a+b", "a b", "a/b", "a:b", "a@b", "a!b", "é", "true", "yes", "007"]
for name in NAMES:
    case("name", name.replace("/", "_"), skill(name))
    case("name in quotes", name.replace("/", "_"), skill(json.dumps(name, ensure_ascii=False)))
for name in ["null", "~", "1.0", "1e3", "0x10"]:
    case("name that YAML takes for something else", name, skill(name))
for name, folder in [("a", "b"), ("pdf", "PDF"), ("pdf", "pdf-tools"), ("é", "e\u0301"), ("ﬁ", "fi"), ("x", "x x")]:
    case("unicode" if name in ("é", "ﬁ") else "folder", folder, skill(name))
for name in ['""', "''", "' '", "", "' x '", "|\n  x", ">\n  x"]:
    case("name", "x", skill(name))
for length in [1, 2, 1023, 1024, 1025, 5000]:
    case("description", "x", skill("x", "d" * length))
    case("description", "x", skill("x", "ü" * length))
    case("description", "x", skill("x", f"'{'d' * length}'"))
for text in ["", "''", '""', "' '", "~", "null", "|\n  two\n  lines", ">\n  two\n  lines", "'it''s'", '"a: b"', "a:b", "a #b", "1", "1.5", "true", "two\n  lines", "-",
             "http://example.org/x"]:
    kind = "description that YAML takes for nothing" if text in ("~", "null") else "description"
    case(kind, "x", skill("x", text))
for text in ["Use when: it rains", "a: b: c", "ends with:"]:
    case("colon without quotes", "x", skill("x", text))
case("tab before a value", "x", skill("x", "\ta"))
case("cut within a line", "x", skill("x", "a---b"))
case("cut within a line", "x", skill("x", "'a --- b'"))
for text in ["", "Does it.\n", "# Title\n", "--\nname: x\n--\n", "---\nname: x\ndescription: y\n", "---\n---\n", "---\n\n---\n", "---\n- a\n---\n", "---\nx\n---\n", "\n---\nname: x\ndescription: y\n---\n",
             "---\nname: x\n---\n", "---\ndescription: y\n---\n", "name: x\ndescription: y\n"]:
    case("front matter", "x", text)
case("a mark at the beginning", "x", "\ufeff" + skill("x"))
case("front matter", "x", skill("x").replace("\n", "\r\n"))
for key in ["version: 1.0.0", "model: opus", "author: me", "tags:\n  - a", "argument-hint: a", "disable-model-invocation: true", "user-invocable: false", "context: fork", "hooks:\n  a: b",
            "allowed_tools: Read", "Name: x", "descriptions: y", "jido:\n  actions:\n    - Read"]:
    case("key", "x", skill("x", more=key + "\n"))
for key in ["license: MIT", "license: 'Apache-2.0'", "license: |\n  long\n  text", "compatibility: needs git", f"compatibility: {'c' * 500}", f"compatibility: {'c' * 501}", "compatibility: ''",
            "metadata:\n  author: me", "metadata:\n  version: 1.0\n  b: 'c'", "metadata:\n  a: 1\n  b: true", "allowed-tools: Read", "allowed-tools: Read Bash(git *)", "allowed-tools: Read, Grep",
            "allowed-tools: Bash(jq *) Mine", "allowed-tools:\n  - Read\n  - Grep", "license: MIT\ncompatibility: x\nallowed-tools: Read\nmetadata:\n  a: b"]:
    case("key of the standard", "x", skill("x", more=key + "\n"))
for key in ["license:\n  - a", "metadata: text", "metadata:\n  - a", "metadata:\n  a:\n    b: c"]:
    case("value of another type", "x", skill("x", more=key + "\n"))
case("value of another type, refused", "x", skill("x", more="compatibility:\n  - a\n"))
for key in ["metadata: {a: b}", "allowed-tools: [Read, Grep]", "license: &a MIT", "license: !!str MIT", "metadata: {}"]:
    case("YAML that strictyaml has not", "x", skill("x", more=key + "\n"))
for text in ["[", "{", "'a", '"a', "@a", "`a", "%a", "*a", "[a", "]a"]:
    case("broken", "x", skill("x", text))
for more in ["name: x\n", "description: again\n", "license: a\nlicense: b\n", "\tlicense: a\n", "license\n", " license: a\n", "- a\n", ": a\n"]:
    case("broken", "x", skill("x", more=more))

with tempfile.TemporaryDirectory() as root:
    for number, one in enumerate(CASES):
        folder = pathlib.Path(root, str(number), one["folder"])
        folder.mkdir(parents=True)
        folder.joinpath("SKILL.md").write_bytes(one["text"].encode())
        try:
            errors = validate(folder)
        except Exception as error:  # It falls over where it should say no.
            errors = [repr(error)]
        one["valid"] = not errors
        one["says"] = " ".join(" ".join(errors).replace(str(folder), "").split())[:160]
print(json.dumps(CASES, indent=1, ensure_ascii=False))
