"""Writes spec/data/dap_schema.json: of the published schema of the Debug Adapter Protocol, the types,
required fields and enumerations of the messages that `flare dap` sends.

    python3 spec/support/dap_schema.py debugAdapterProtocol.json VERSION

The schema is debugAdapterProtocol.json of github.com/microsoft/debug-adapter-protocol (MIT licence);
VERSION is its commit.
"""
import json
import sys

COMMANDS = """initialize launch configurationDone setBreakpoints setExceptionBreakpoints threads
stackTrace scopes variables setVariable evaluate continue next stepIn stepOut pause exceptionInfo
completions disconnect terminate setFunctionBreakpoints""".split()
EVENTS = "initialized stopped output process thread exited terminated".split()
KEPT = ("type", "enum", "properties", "required", "items", "$ref", "allOf")


def name_of(word, ending):
    return word[0].upper() + word[1:] + ending


def reduced(schema):
    out = {}
    for key in KEPT:
        if key not in schema:
            continue
        value = schema[key]
        if key == "properties":
            value = {name: reduced(inner) for name, inner in value.items()}
        elif key == "items":
            value = reduced(value)
        elif key == "allOf":
            value = [reduced(inner) for inner in value]
        out[key] = value
    return out


def references(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def main(path, version):
    with open(path) as file:
        definitions = json.load(file)["definitions"]
    wanted = [name_of(c, "Response") for c in COMMANDS] + [name_of(e, "Event") for e in EVENTS]
    wanted.append("ErrorResponse")
    done = {}
    while wanted:
        name = wanted.pop()
        if name not in done:
            done[name] = reduced(definitions[name])
            wanted += references(done[name])
    with open("spec/data/dap_schema.json", "w") as file:
        json.dump({"source": "debugAdapterProtocol.json, " + version, "definitions": done}, file,
                  indent=1, sort_keys=True)
        file.write("\n")


main(sys.argv[1], sys.argv[2])
