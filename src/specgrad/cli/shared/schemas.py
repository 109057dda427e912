"""What every command prints under --json, as JSON schemas (draft 2020-12): one per command, and one of errors.

A new key is one line here; `python tools/make_json.py` then rewrites docs/reference/json.md. VERSIONS grows where a key
goes or changes its meaning, and not where one is added. Keys that nobody wrote down are refused by the tests.
"""

from __future__ import annotations

from typing import Any

from specgrad.check.verdicts.arithmetic_classes import CLASSES, FLOAT32
from specgrad.check.verdicts.judge import SEVERITY

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
VERSIONS: dict[str, int] = dict.fromkeys(
    ("accuracy", "audit", "campaign-collect", "certify", "compare", "largest", "tolerance"), 2
)
"""Of schemas that are not version 1 any more."""


def schema_name(command: str) -> str:
    """Return the value of the key "schema".

    >>> schema_name("audit")
    'specgrad/audit/2'
    """
    return f"specgrad/{command}/{VERSIONS.get(command, 1)}"


# --- parts ------------------------------------------------------------------------------------------------------------


def _text(about: str) -> Schema:
    """Return the schema of a text."""
    return {"type": "string", "description": about}


def _count(about: str) -> Schema:
    """Return the schema of an integer from 0."""
    return {"type": "integer", "minimum": 0, "description": about}


def _integer(about: str) -> Schema:
    """Return the schema of an integer."""
    return {"type": "integer", "description": about}


def _number(about: str) -> Schema:
    """Return the schema of a number; NaN and infinities are written as "nan", "inf", "-inf"."""
    return {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}], "description": about}


def _bound(about: str) -> Schema:
    """Return the schema of a number, or null for unbounded."""
    return _or_null({"type": "number"}, about)


def _list(items: Schema, about: str) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, "description": about}


def _map(values: Schema, about: str) -> Schema:
    """Return the schema of an object with arbitrary keys, such as names of layers or packages."""
    return {"type": "object", "additionalProperties": values, "description": about}


def _or_null(part: Schema, about: str) -> Schema:
    """Return the schema of a part that may be null."""
    return {"anyOf": [part, {"type": "null"}], "description": about}


def _choice(*words: str) -> Schema:
    """Return the schema of one of these words."""
    return {"enum": list(words), "description": " | ".join(words)}


def _object(about: str, /, optional: Schema | None = None, **keys: Schema) -> Schema:
    """Return the schema of an object with exactly these keys; `optional` ones may be absent."""
    every = {name.replace("__", "-"): part for name, part in keys.items()}
    return {
        "type": "object",
        "properties": {**every, **(optional or {})},
        "required": list(every),
        "additionalProperties": False,
        "description": about,
    }


def _command(name: str, about: str, verdicts: Schema, /, optional: Schema | None = None, **keys: Schema) -> Schema:
    """Return the schema of what a command prints under --json."""
    constant = {"const": schema_name(name), "description": "the name and the version of this schema"}
    whole = _object(about, optional, schema=constant, verdict=verdicts, **keys)
    return {"$schema": DRAFT, "$id": schema_name(name), "title": name, **whole}


KINDS = _choice(*SEVERITY)
CAMPAIGN = _text("the kind of campaign: conformance, audit, certify, tiles")
RANGE = {
    "least": _number("if all shards are like the fastest of these"),
    "mean": _number("if they are like these on average"),
    "most": _number("if they are like the slowest of these"),
}
SHAPE = _list(_count("a size"), "the sizes of all axes")
INDEX = _list(
    _count("an index"), "a cell: one index per axis; before them the number of the point, if there are several"
)
VERSIONS_USED = _map(_text("a version"), "the packages that were used, with their versions")
NOTES = _list(_text("a sentence"), "what else a reader should know")
DEPLOYMENT = _map(_text("a sentence"), "the executions that this is about, in sentences")
CLASSES_OF = _map(
    _object(
        "the classes of one operator",
        covered=_count("classes with a case"),
        listed=_count("classes in all, those without a case too"),
        classes=_list(
            _object(
                "one class",
                type=_text("the element type, as tags write it"),
                zone=_text("the word of its tag"),
                kind=_choice("type", "shape", "broadcasting", "constraint", "function", "risk"),
                text=_text("what it holds"),
                cases=_count("how many were written; 0 under --list"),
            ),
            "by zone and type",
        ),
        missing=_map(_text("why"), "classes that are known and not drawn"),
    ),
    "by ONNX's name",
)
INCOMPLETE = _text("what vectors do not show")
DIFFERENCE = _object(
    "the largest difference from the exact values",
    absolute=_number("its size"),
    relative=_number("over the exact value there"),
    ulps=_number("in units of the last place of the exact value there"),
    index=INDEX,
)
CLASS = _text(f"a class of --accept ({FLOAT32}, {', '.join(c.name for c in CLASSES)}), or the layer's own type")
LAYER = _object(
    "one layer, by its own name in the model",
    layer=_text("its name"),
    operator=_text("its operator, with the attributes that shape it"),
    shape=SHAPE,
    dtype=_text("the format of its values: float32, float16, bfloat16, uint8, int32, ..."),
    verdict=KINDS,
    ratio=_or_null(_number("a share"), "the largest share of its allowance that any cell used; null: infinitely much"),
    detail=_text("the verdict in words"),
    arithmetic=_or_null(CLASS, "the narrowest arithmetic that explains it; null: none, or not judged"),
    optional={
        "worst_index": INDEX,
        "actual": _number("what the worst cell holds"),
        "expected": _number("the exact value there"),
        "allowed": _number("the proven bound on rounding there"),
        "difference": {**DIFFERENCE, "description": "the largest difference from the whole model's exact values"},
        "own_error": {**DIFFERENCE, "description": "the largest error that the layer itself made"},
        "share": _number("the part of the output's difference that its own error explains, to first order"),
    },
)
ATTRIBUTION = _object(
    "which layers explain the difference at the output",
    output={**DIFFERENCE, "description": "at the output"},
    shares=_map(_number("a share"), "by layer, the largest first; they sum to `explained`"),
    explained=_number("1 as far as the first order holds"),
    estimate=_number("an estimate, not a bound: the standard deviation of a correct runtime's error there"),
    order=_choice("first"),
)
COVERAGE = _object(
    "how much of the model was judged",
    layers=_count("layers that were judged"),
    of_layers=_count("all layers"),
    multiply_adds=_count("their multiply-adds"),
    of_multiply_adds=_count("all multiply-adds that could be counted"),
    uncounted=_list(_text("a layer"), "layers whose multiply-adds nobody knows"),
)
BLIND_SPOTS = _object(
    "how sharp a verdict on outputs alone is",
    points=_count("inputs that the model ran on"),
    cells=_count("output cells that were judged, of all points"),
    smallest=_number("what is allowed in the narrowest cell"),
    largest=_number("what is allowed in the widest cell"),
    tried=_count("usual faults that were planted in the model, one at a time, and computed exactly"),
    detected=_count("those whose effect is more than twice what is allowed"),
    undetected=_list(_text("a layer and a fault"), "the others: they could be taken for rounding"),
)
ASKED = _list(
    _object(
        "a runtime's answer at the counterexample",
        who=_choice("torch", "module", "onnxruntime"),
        outcome=_choice("breaks it", "does not break it", "does not count", "no answer"),
        optional={
            "y": _list(_number("an output"), "the outputs that it computes"),
            "reason": _text("why there are none, or why they do not count"),
        },
    ),
    "everybody who was asked: torch (specgrad's engine), module (the PyTorch module that was given), onnxruntime",
)
COUNTEREXAMPLE = _object(
    "an input in the property's box that breaks it",
    x={"type": "array", "description": "the input in float32, as the network was run on it: nested lists of its shape"},
    y=_list(_number("an output"), "the outputs there"),
    confirmed=_list(_text("an engine"), "where it was run, and broke the property"),
    asked=ASKED,
    exact_outputs_break_it=_or_null(
        {"type": "boolean"}, "whether the exact outputs break it; null: not known well enough"
    ),
    optional={
        "point": _list(_text("a decimal"), "where x is rounded: the point of the property, flat and exact"),
        "named": {"type": "object", "description": "of several inputs, outputs or networks: each by its name"},
    },
)
UNKNOWN = _object(
    "unknown after a search: how far it came, and what would help",
    problems=_count("sub-problems that were bounded"),
    rate=_number("of them per second"),
    settled=_or_null(_number(""), "the share of the box of inputs that is settled; null: not known"),
    seconds_more=_or_null(_number(""), "if what is left is like what is settled; null: nobody can say"),
    margin=_or_null(_number(""), "of the open part that is farthest from proven: not above 0"),
    box=_list(
        _object("", input=_count("its number"), low=_number("its ends in that part"), high=_number("")),
        "inputs that were cut",
    ),
    rounding={"type": "boolean", "description": "that part would be excluded if nothing were rounded"},
    layer=_or_null(
        _object("", name=_text("the layer that loses most there"), share=_number("of what is lost")), "null: not known"
    ),
)
REPORT = _object(
    "with --html: what the page shows",
    layers=_list(
        _object(
            "one operator",
            name=_text("of its node"),
            operator=_text("with its parameters"),
            shape=SHAPE,
            widest=_number("its widest box over the inputs of the first case; inf: unbounded"),
            mean=_number("of the widths of its cells, about"),
            bending=_count("cells of a function that bends"),
            unstable=_count("those whose box has a bend inside"),
            optional={"growth": _number("its widest box over the widest one that it reads")},
        ),
        "in order; empty: no boxes were computed",
    ),
    optional={
        "trees": _list(
            _list(
                _object(
                    "one tree of cuts",
                    leaves=_count("parts that are not cut"),
                    depth=_count("the most cuts above a leaf"),
                    cuts=_map(_count("how many"), "by kind: input, node, winner"),
                    most_cut=_list(
                        _object("one cell", cell=_text("of an input or a layer"), cuts=_count("how many")),
                        "the cells that were cut most",
                    ),
                ),
                "of one case",
            ),
            "how the question was divided, by case",
        ),
        "open_part": _object(
            "unknown: the part that is farthest from proven",
            margin=_number("not above 0"),
            cuts=_list(_text("a cell of a layer and its side"), "cuts that are none of inputs"),
            box=_list(
                _object(
                    "one input",
                    cell=_text("its name"),
                    low=_number("its ends in this part"),
                    high=_number(""),
                    whole_low=_number("its ends in the question"),
                    whole_high=_number(""),
                ),
                "inputs that were cut",
            ),
        ),
        "original": _object(
            "what the counterexample was moved from",
            about=_text("the given input, or the middle of the box"),
            x={"type": "array", "description": "the input, as nested lists of its shape"},
            y=_list(_number("an output"), "the outputs there"),
            moved=_count("cells in which both differ"),
            farthest=_number("the largest difference of a cell"),
        ),
    },
)

ANY_DECISION = {"description": "a class, a list of classes, or 0 and 1 for no and yes"}
SAMPLE = _object(
    "one sample",
    number=_count("its place in the data"),
    verdict=_choice("proven", "not proven", "differs"),
    decision=_or_null(ANY_DECISION, "what is decided; null where there are many decisions"),
    decisions=_count("how many decisions there are: one, or one per pixel"),
    unproven=_count("how many of them are not proven"),
    margin=_or_null(_number(""), "of the comparison nearest to turning, at exact values; null: not known"),
    tolerance=_or_null(_number(""), "what executions may take from it; null: nothing is proven"),
    between=_list(_count("a flat number"), "the outputs that are compared there; one for a threshold"),
    seconds=_number("spent on it"),
    optional={
        "reason": _text("why nothing is known"),
        "executions": _list(
            _object(
                "a concrete execution",
                name=_text("the runtime with its version, or the order of its sums"),
                decision={**ANY_DECISION, "description": "what it decides"},
                outputs=_map(_number("an output"), "by flat number; all, or those that decide"),
                optional={
                    "input": _list(_number("a cell"), "with --eps: the input, flat"),
                    "asked": _list(
                        _object(
                            "who was asked at that input",
                            who=_text("torch: our engine; module: the one that was given; onnxruntime, on the file"),
                            outcome=_choice("breaks it", "does not break it", "does not count", "no answer"),
                        ),
                        "with --eps: whether it is decided differently there",
                    ),
                },
            ),
            "two that decide differently",
        ),
        "outside": _list(_text("a runtime"), "outputs outside the proven bounds: it executes something else"),
    },
)
CERTIFICATE = _object(
    "with --certificate: what was written",
    file=_or_null(_text(""), "the file; null: none was written, and the exit code is 2 at least"),
    optional={"reason": _text("why there is none")},
)

# --- commands ---------------------------------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "show": _command(
        "show",
        "the layers of a model",
        _choice("ok"),
        layers=_list(
            _object(
                "one layer",
                name=_text("its name"),
                operator=_text("its operator"),
                shape=SHAPE,
                parameters=_count("parameters that it is the first to use"),
                multiply__adds=_count("multiply-adds"),
                optional={"receptive field": _text("the input cells that one output reads, per axis; or all")},
            ),
            "in the order of the model, inputs first",
        ),
        total=_text("layers, nodes, parameters and multiply-adds, in one line"),
        notes=_list(_text("a sentence"), "nodes that are passed over, with the reason"),
    ),
    "audit": _command(
        "audit",
        "a model on a runtime, layer by layer",
        KINDS,
        model=_text("the file, or the module's class"),
        runtime=_text("the runtime"),
        versions=VERSIONS_USED,
        first_divergent=_or_null(LAYER, "the first layer that rounding does not explain"),
        export=_or_null(LAYER, "a layer that the exported file no longer computes as the module does"),
        layers=_list(LAYER, "in the order of the model"),
        attribution=_or_null(ATTRIBUTION, "null: no difference, or none that can be followed"),
        coverage=COVERAGE,
        whole={**LAYER, "description": "the outputs of the model as it is, as if they were those of one layer"},
        blind_spots=_or_null(
            BLIND_SPOTS, "what could not be seen, where outputs alone were judged and explained; else null"
        ),
        notes=NOTES,
        script=_text("a program that reproduces the first layer's fault; empty if there is none"),
        deployment=_map(DEPLOYMENT, 'what a correct execution is, for "layers" and for the "whole" model'),
    ),
    "conformance": _command(
        "conformance",
        "a runtime against the contract, operator by operator",
        _choice("ok", "differs", "times out", "cannot tell"),
        runtime=_text("the runtime"),
        versions=VERSIONS_USED,
        seed=_count("the seed of the questions"),
        operators=_map(
            _object(
                "how many questions ended how",
                {kind: _count(f"questions: {kind}") for kind in SEVERITY},
                ratio=_number("the largest share of its allowance that any answer used"),
            ),
            "by operator",
        ),
        refusals=_map(_map(_count("how often"), "by the runtime's own words"), "by operator"),
        findings=_list(
            _object(
                "one fault, shrunk",
                operator=_text("the operator"),
                gradient={"type": "boolean", "description": "whether its gradient was asked"},
                rule=_text("the label of the rule that is broken"),
                about=_text("the rule in words"),
                question=_text("the smallest question that shows it"),
                verdict=KINDS,
                detail=_text("the verdict in words"),
                script=_text("a program that shows it"),
            ),
            "one of each sort",
        ),
        deployment=DEPLOYMENT,
    ),
    "describe": _command(
        "describe",
        "conformance --describe: how a kernel is called",
        _choice("ok"),
        operators=_map(
            _object(
                "one operator",
                meaning=_text("its formula and its rules"),
                arrays=_map(SHAPE, "its arrays in order, with the shapes of one question"),
                left_out=_list(_text("an array"), "arrays that some questions leave out"),
                attributes=_map(
                    _object(
                        "one attribute",
                        type=_text("of its values"),
                        asked=_text("which values questions have"),
                        meaning=_text("in words"),
                    ),
                    "all are passed, always, by name",
                ),
            ),
            "by operator",
        ),
    ),
    "runtimes": _command(
        "runtimes",
        "the runtimes that are known",
        _choice("ok"),
        runtimes=_map(_or_null(VERSIONS_USED, "null: not installed"), "by name"),
        optional={"page": _text("with --write: the page that was written")},
    ),
    "explain": _command(
        "explain",
        "what one output cell is computed from",
        _choice("ok"),
        layer=_text("its layer"),
        operator=_text("its operator"),
        shape=SHAPE,
        index=INDEX,
        taps=_list(
            _object("one tap of the window", tap=INDEX, reads=_or_null(INDEX, "the input cell; null: padding")),
            "empty for an operator without a window",
        ),
        channels=_or_null(_list(_count("a channel"), ""), "the first and the last input channel that it reads"),
        divisor=_or_null(_text(""), "of an average, and why"),
        inputs=_map(
            _list(_or_null(_list(_count("an index"), ""), "first and last index; null: all"), "per axis"),
            "outside these cells of an input nothing is read",
        ),
    ),
    "rule": _command(
        "rule",
        "a rule of the contract, or all of them",
        _choice("ok"),
        {
            "rule": _text("the label"),
            "text": _text("formula, example, who enforces it"),
            "rules": _map(_text("a title"), "without a label: every label with its title"),
        },
    ),
    "certify": _command(
        "certify",
        "whether a property holds for every execution",
        _choice("holds", "violated", "unknown"),
        margins=_list(
            _list(_number("a margin"), "by alternative"), "by case: how far each alternative of the property is away"
        ),
        seconds=_map(_number("seconds"), "by stage of the search"),
        problems=_count("subproblems of the branch and bound"),
        deployment=DEPLOYMENT,
        optional={
            "notes": NOTES,
            "reason": _text("why nothing was proven, or where the input stands"),
            "unknown": UNKNOWN,
            "counterexample": COUNTEREXAMPLE,
            "certificate": CERTIFICATE,
            "report": REPORT,
        },
    ),
    "largest": _command(
        "largest",
        "certify --largest: how far every cell of an input may move",
        _choice("holds", "violated", "unknown"),
        proven=_or_null(_number(""), "this eps is proven; null: not even the input itself"),
        violated=_or_null(_number(""), "the distance of the nearest counterexample that was found; null: none was"),
        gap=_or_null(_number(""), "between both"),
        reason=_text("why they are not closer; empty: they are close"),
        tried=_list(
            _object("one eps", eps=_number("how far"), verdict=_text("what came out")), "in the order of the search"
        ),
        deployment=DEPLOYMENT,
        notes=NOTES,
        optional={"counterexample": COUNTEREXAMPLE, "certificate": CERTIFICATE},
    ),
    "preserve": _command(
        "preserve",
        "which decisions no execution of the class can change",
        _choice("proven", "not proven", "differs"),
        model=_text("the file, or the module's class"),
        decision=_text("argmax, top-K, threshold:T, mask or mask:T"),
        eps=_or_null(_text("a rational"), "how far every cell of a sample may move; null: not at all"),
        samples=_count("how many samples"),
        proven=_count("samples whose decisions are all proven"),
        not_proven=_count("samples with a decision that is neither proven nor shown to differ"),
        differ=_count("samples with two executions that decide differently"),
        records=_list(SAMPLE, "one per sample, in order; a line of the file of --checkpoint has the same keys"),
        deployment=DEPLOYMENT,
        notes=NOTES,
    ),
    "verify": _command(
        "verify",
        "the answer to a VNN-LIB query",
        _choice("unsat", "sat", "unknown", "timed-out"),
        query=_text("the file, as it was given"),
        networks=_map(_text("its file"), "by name"),
        seconds=_number("spent on the query"),
        problems=_count("subproblems of the search"),
        deployment=DEPLOYMENT,
        optional={
            "notes": NOTES,
            "reason": _text("why there is no better answer"),
            "unknown": UNKNOWN,
            "confirmed": _list(_text("an engine"), "where the assignment was run, and satisfies the query"),
            "asked": ASKED,
            "assignment": _list(
                _object(
                    "one tensor",
                    name=_text("as the query declares it"),
                    type=_text("its element type, in the words of VNN-LIB"),
                    shape=SHAPE,
                    values=_list(_number("a cell"), "in float32, in row-major order"),
                    optional={"point": _list(_text("a decimal"), "where values are rounded: the exact cells")},
                ),
                "in the order of the declarations; cells of VNN-LIB 1.0 are the tensors X and Y",
            ),
        },
    ),
    "supports": _command(
        "supports",
        "what verify can answer",
        _choice("ok"),
        supports=_map(_list(_text("a line"), "as it is printed"), "by capability of the VNN-LIB standard"),
    ),
    "check-certificate": _command(
        "check-certificate",
        "what a certificate proves",
        _choice("valid", "refused", "unknown"),
        {
            "reason": _text("refused, unknown: why"),
            "network": _object("the network", file=_text("as it was given"), digest=_text("of its graph and weights")),
            "property": _text("the property, as it was given"),
            "cases": _list(
                _object(
                    "one box",
                    box=_text("in words"),
                    alternatives=_list(
                        _object(
                            "one",
                            excluded=_text("what cannot happen"),
                            margin=_number("by how much"),
                            leaves=_count("of the tree of cuts that proves it; 1 without cuts"),
                        ),
                        "",
                    ),
                ),
                "all boxes of the property",
            ),
            "margin": _number("the least margin, rounded towards 0"),
            "checkers": _list(_text("which one"), "those that accepted it; with --proven also the one proven in Coq"),
            "program": _object(
                "with --proven: the program that accepted it",
                path=_text("where it is"),
                sha256=_text("its digest"),
                is_built=_or_null(
                    {"type": "boolean"}, "it is the one that make -C verified has built; null: none is here to compare"
                ),
            ),
            "arithmetic": _map({}, "the executions, as the certificate states them"),
            "deployment": DEPLOYMENT,
            "notes": NOTES,
        },
    ),
    "accuracy": _command(
        "accuracy",
        "errors of every layer, for every input in a box and every execution of a class; null stands for unbounded",
        _choice("bounded", "unbounded"),
        layers=_list(
            _object(
                "one layer, by its own name in the model; numbers are those of its worst cell",
                layer=_text("its name"),
                operator=_text("its operator, with the attributes that shape it"),
                shape=SHAPE,
                output={"type": "boolean", "description": "whether it is an output of the model"},
                propagated=_bound("how far errors of its inputs move the exact result"),
                introduced=_bound("what its own arithmetic adds; fused, that of its region up to here"),
                total=_bound("no execution is farther from the exact value, in any cell"),
                low=_bound("the least value of any cell, exact or computed"),
                high=_bound("the largest value of any cell"),
                worst_index=INDEX,
            ),
            "in the order of the model; layers that compute nothing from the inputs are left out",
        ),
        unbounded=_list(_text("a layer"), "layers about which nothing is proven: overflow is possible, ..."),
        notes=NOTES,
        deployment=DEPLOYMENT,
        seconds=_number("spent"),
    ),
    "tolerance": _command(
        "tolerance",
        "how far any execution can be from the exact outputs, and from another one; null stands for unbounded",
        _choice("bounded", "unbounded"),
        tolerance=_bound("the largest distance from the exact value, over all outputs"),
        pairwise_tolerance=_bound("the most that two executions can be apart, over all outputs"),
        rtol=_bound(
            "with atol: numpy.testing.assert_allclose(a, b, rtol=rtol, atol=atol) holds for any two executions"
        ),
        atol=_bound("see rtol"),
        largest=_or_null(
            _object(
                "one cell",
                output=_text("the name of the output"),
                index=INDEX,
                point=_or_null(_count(""), "which point; null: one input was given"),
                exact=_bound("the exact value there, as float64 has it"),
                tolerance=_bound("the distance there"),
                ulps=_bound("the distance in units in the last place of the exact value"),
            ),
            "the cell with the largest distance; null: there is no cell",
        ),
        outputs=_list(
            _object(
                "one output of numbers; arrays are nested lists of its shape, with --points one axis more in front",
                name=_text("its name"),
                dtype=_text("the format of its values"),
                exact={"description": "the exact values, as float64 has them"},
                tolerance={"description": "per cell, the largest distance from the exact value"},
                pairwise_tolerance={"description": "per cell, the most that two executions can be apart"},
            ),
            "in the order of the model",
        ),
        layers=_map(_number("an amount"), "how much each layer contributes to the largest distance; they sum to it"),
        unbounded=_list(_text("a layer"), "layers about which nothing is proven"),
        points=_or_null(_count(""), "with --points: how many"),
        notes=NOTES,
        deployment=DEPLOYMENT,
        seconds=_number("how long it took"),
    ),
    "tiles": _command(
        "tiles",
        "how far a network looks beyond a tile, and what exact tiles cost",
        _choice("ok", "reads everything"),
        halo=_list(
            _object(
                "one spatial axis of an input; sizes are cells of it",
                input=_text("the input's name"),
                axis=_count("its axis"),
                before=_integer("cells before a tile that it needs; negative: it begins later"),
                after=_integer("cells after it"),
                align=_count("tiles that begin and end at multiples of it need this halo, and are all alike"),
                crop=_list(
                    _integer("cells"),
                    "before and after, in multiples of align: for running the model itself on crops",
                ),
            ),
            "in the order of the inputs",
        ),
        reads_everything=_list(
            _object(
                "a layer that reads an axis from end to end; no tile alone has that",
                layer=_text("its name"),
                operator=_text("its operator"),
                axes=_list(_count("an axis"), "of its argument"),
                shape=SHAPE,
            ),
            "layers beyond any halo",
        ),
        plan=_or_null(
            _object(
                "tiles of the first output",
                size=SHAPE,
                tiles=_count("how many"),
                kinds=_count("compiled graphs that they share"),
                passes=_count("with --passes: passes over the image before, one for each sum over everything"),
                multiply_adds=_count("of all tiles and passes"),
                multiply_adds_at_once=_count("of one run over everything"),
                peak_bytes=_count("weights and the values of one tile, at most; not what kernels need for themselves"),
                peak_bytes_at_once=_count("the same of one run over everything"),
            ),
            "with --tile or --memory; null: not asked for, or a layer reads everything",
        ),
    ),
    "window": _command(
        "window",
        "which cells a window reads, what it makes of them, what goes back; numbers are strings, as 7/3",
        _choice("ok"),
        operator=_choice("max_pool", "avg_pool", "conv"),
        window=_text("kernel, stride, dilation and padding in short: k3 s2 p1"),
        size=SHAPE,
        out={**SHAPE, "description": "the sizes of the output"},
        weights=_or_null(_list(_text("a number"), "in row-major order"), "of a convolution; null: none"),
        outputs=_list(
            _object(
                "one output",
                output=_list(_count("an index"), "where it stands"),
                taps=_list(
                    _object(
                        "one tap of its window",
                        tap=_list(_count("an index"), "its place in the kernel"),
                        position=_list(_integer("a position"), "what it reads; negative in the low padding"),
                        kind=_choice("input", "padding", "beyond"),
                        share=_or_null(_text(""), "the derivative of the output by that cell; null: no cell"),
                    ),
                    "in row-major order",
                ),
                winner=_or_null(_list(_count("an index"), "a cell"), "of a maximum: the cell that it took"),
                value=_text("what it is"),
                formula=_text("how it comes about, in numbers"),
                cotangent=_text("what is sent back from it"),
            ),
            "in row-major order",
        ),
        cells=_list(
            _object(
                "one cell of the input",
                cell=_list(_count("an index"), "where it stands"),
                value=_text("what it is"),
                cotangent=_text("what it gets from all outputs"),
            ),
            "in row-major order",
        ),
        svg=_or_null(_text(""), "with --svg: the file"),
    ),
    "campaign-estimate": _command(
        "campaign-estimate",
        "what a campaign will cost, from three of its shards",
        _choice("ok", "crashed"),
        kind=CAMPAIGN,
        shards=_count("in all"),
        tried=_list(
            _object("one shard", shard=_count("its number"), seconds=_number("by the clock, on one core")),
            "those that were run; nothing of them is recorded",
        ),
        crashed=_list(
            _object("one shard", shard=_count("its number"), how=_text("in words")), "those that ended without a result"
        ),
        rows_per_shard=_number("verdicts of one shard, on average"),
        start_seconds=_number("until a worker begins with its first shard"),
        core_hours=_object("of all shards, without the start of workers", **RANGE),
        cost=_or_null(_object("core-hours times --price", **RANGE), "null: no price was given"),
    ),
    "campaign-run": _command(
        "campaign-run",
        "what one run of a campaign did",
        _choice("ok", "crashed"),
        kind=CAMPAIGN,
        folder=_text("where the records lie: a folder, or the address of an object store"),
        shards=_count("in all"),
        before=_count("done before this run"),
        run=_count("done by this run"),
        crashed=_count("shards that were given up, by this run or before"),
        deaths=_count("workers that died while this run went on"),
        seconds=_number("how long it took"),
    ),
    "campaign-status": _command(
        "campaign-status",
        "how far a campaign is, from its records alone",
        _choice("ok", "unfinished", "crashed"),
        kind=_text("the kind of campaign that lies there"),
        folder=_text("where the records lie"),
        shards=_count("in all"),
        done=_count("with a result"),
        crashed=_list(_count("a shard"), "given up"),
        left=_count("without a record"),
        per_second=_or_null(_number(""), "shards per second when it was last at work; null: too few to say"),
        seconds_left=_or_null(_number(""), "at that rate; null: not known"),
        quiet_seconds=_or_null(_number(""), "since the last result was recorded; null: there is none"),
    ),
    "campaign-collect": _command(
        "campaign-collect",
        "what came out of a campaign so far",
        _choice("ok", "findings", "unfinished", "crashed", "cannot tell"),
        kind=CAMPAIGN,
        shards=_count("in all"),
        done=_count("with a result"),
        crashed=_list(
            _object(
                "one shard",
                shard=_count("its number"),
                how=_text("in words"),
                attempts=_count("how often it was tried"),
            ),
            "given up",
        ),
        rows=_count("verdicts"),
        counts=_map(_map(_count("rows"), "by verdict"), "by operator (conformance), model and runtime (audit), model"),
        findings=_list(
            _object(
                "findings of one sort",
                verdict=_text("of the rows"),
                what=_text("the smallest case"),
                detail=_text("what is wrong with it"),
                times=_count("rows of this sort"),
                file=_or_null(_text(""), "the script's name in the folder of --scripts; null: there is none"),
                row=_map({}, "the row of the campaign that it came from"),
            ),
            "each sort once",
        ),
    ),
    "vectors": _command(
        "vectors",
        "test vectors that were written",
        _choice("ok"),
        folder=_text("where they are"),
        seed=_count("the same seed draws the same numbers"),
        operators=CLASSES_OF,
        cases=_count("in all"),
        cells=_count("of all outputs"),
        open=_count("cells of which nothing is demanded"),
        executions=DEPLOYMENT,
        incompleteness=INCOMPLETE,
    ),
    "classes": _command(
        "classes",
        "the classes that test vectors are drawn from (vectors --list)",
        _choice("ok"),
        operators=CLASSES_OF,
        incompleteness=INCOMPLETE,
    ),
    "compare": _command(
        "compare",
        "whether two models are one function over real numbers",
        _choice("same", "differs", "cannot tell"),
        method=_text("how it was shown, in words"),
        interface=_list(_text("a sentence"), "names, types, open sizes and inputs with a default that differ"),
        executed=_or_null(
            _object(
                "executions of both that are farther apart than the tolerance of one",
                about=_text("at which input"),
                output=_count("the output, counted from 0 among those of numbers"),
                index=INDEX,
                values=_list(_or_null(_number(""), "null: not finite"), "what each of the two gave"),
                tolerances=_list(_or_null(_number(""), "null: unbounded"), "how far each may be from the exact value"),
            ),
            "with verdict same: that the spellings are not alike as programs; null: not seen, or not looked for",
        ),
        weights=_or_null(
            _object(
                "constants of two networks of one structure",
                max_difference=_number("no constant differs by more from its counterpart"),
                largest=_number("the largest constant of that array"),
                layers=_list(_text("a layer"), "where they differ the most: of the first model, of the second"),
            ),
            "null: the structures differ, or the models are the same",
        ),
        points=_list(
            _object(
                "one input",
                about=_text("which"),
                lower=_number("the outputs are at least so far apart at that cell"),
                upper=_number("no output is farther apart at this input"),
                output=_count("the output that is farthest apart, counted from 0 among those of numbers"),
                index=INDEX,
                value=_number("what the first model gives there"),
                how=_text("what it was computed with"),
                within_rounding=_or_null(
                    {"type": "boolean"}, "whether float32 executions of both could agree there; null: not known"
                ),
                allowed=_or_null(_number(""), "the sum of both tolerances at that cell; null: not computed"),
            ),
            "inputs that were looked at",
        ),
        max_difference=_or_null(_number(""), "the largest difference that is proven: over the box, else at the inputs"),
        box=_or_null(
            _object(
                "all inputs of a box",
                max_difference=_or_null(_number(""), "no input sets the exact outputs farther apart; null: not known"),
                max_execution_difference=_or_null(
                    _number(""),
                    "no two executions of `deployment`, one of each, are farther apart; null: unknown",
                ),
                witness_difference=_number(
                    "so far apart the exact outputs are, at least, at some input; 0: none was found"
                ),
                how=_text("what `max_difference` was found by"),
                independent_bound=_or_null(_number(""), "what bounds of each model by itself would say; null: nothing"),
            ),
            "with --eps, or --low and --high; null: not asked for",
        ),
        divergent_layers=_or_null(
            _list(_text("a layer"), "of the first model, of the second; empty: none"),
            "the first layers that compute what the other model computes nowhere; null: not looked for",
        ),
        first_divergent_value=_or_null(
            _text(""), "the first layer of the first model whose values, up to float32, the second has nowhere"
        ),
        inputs=_map(SHAPE, "the inputs, by name: what is said holds at these sizes"),
        witness=_or_null(
            {"type": "array"}, "one nested list per input: an input that shows the difference; null: none, or large"
        ),
        deployment=DEPLOYMENT,
        notes=NOTES,
        seconds=_number("how long it took"),
    ),
    "evidence": _command(
        "evidence",
        "what is known of a model and its target",
        _choice("ok", "findings", "cannot tell"),
        model=_text("the file"),
        digests=_map(_text("64 hexadecimal digits"), "SHA-256 of every file that was read"),
        items=_list(
            _object(
                "one question",
                name=_text("model, profile, layers, outputs, decisions, box, or certificate and its file"),
                question=_text("in words"),
                verdict=_text("a verdict of the command that answers it, or: not asked"),
                answer=_text("in sentences"),
                supports=_text("what it may support, in the words of ED-324/ARP6983"),
                deployment=DEPLOYMENT,
                details=_or_null(
                    _map({}, ""),
                    "what profile, audit, tolerance, preserve, accuracy or check-certificate print as --json, by its "
                    "schema; of the model, sizes by name; null: not asked, or nothing more is known",
                ),
            ),
            "in the order of the page",
        ),
        versions=VERSIONS_USED,
        purpose=_list(_text("a sentence"), "what this is, and what it is not"),
        assumptions=_list(_text("a sentence"), "what it rests on"),
        notes=NOTES,
    ),
    "profile": _command(
        "profile",
        "which rules of the ONNX safety profile a file breaks",
        _choice("no finding", "broken", "undecided"),
        profile=_choice("SONNX"),
        caveat=_list(_text("a sentence"), "what a verdict is about, and what it is not"),
        model=_text("the file's name"),
        digest=_text("the SHA-256 of the file, in hexadecimal"),
        box=_or_null(_list(_number("an end"), "lower, upper"), "what --box said; null: nothing"),
        rules=_list(
            _object(
                "one rule",
                rule=_text("S1 to S31"),
                level=_choice("E", "W"),
                tag=_text("the working group's own labels"),
                source=_text("the texts"),
                version=_text("their versions, in the same order"),
                says=_text("the rule in words"),
                status=_choice("no finding", "broken", "undecided", "not checked"),
                findings=_count("how many findings it has"),
                reason=_or_null(_text(""), "why it was not checked; null: it was"),
            ),
            "every rule, in order; level W: the working group is undecided about it",
        ),
        findings=_list(
            _object(
                "one place",
                rule=_text("its rule"),
                severity=_choice("broken", "undecided"),
                tag=_text("the working group's own labels"),
                source=_text("the texts"),
                version=_text("their versions, in the same order"),
                node=_or_null(_text(""), "the name of the node; null: it is no node"),
                index=_or_null(
                    _count("a number"), "of the node, in the file's order, functions expanded; null: no node"
                ),
                operator=_or_null(_text(""), "the node's operator; null: no node"),
                value=_or_null(_text(""), "the name of a value or tensor; null: none"),
                what=_text("what is wrong there"),
                cure=_text("what to do; empty: nothing that we know"),
            ),
            "rule by rule",
        ),
        notes=NOTES,
        versions=VERSIONS_USED,
        normalised=_or_null(
            _object(
                "the file that --normalise wrote, which all of the above is about",
                file=_text("its name"),
                changes=_map(_count("how often"), "what was written differently"),
                shown=_text("how it was shown to mean the same"),
                before=_object(
                    "the model that was given",
                    verdict=_choice("no finding", "broken", "undecided"),
                    digest=_text("its SHA-256"),
                    findings=_map(_count("findings"), "by rule"),
                ),
            ),
            "null: --normalise was not given",
        ),
    ),
    "error": _command(
        "error",
        "instead of an answer, from any command: exit code 2 or above",
        _choice("error", "cannot tell"),
        reason=_text("one line, the same as on stderr"),
    ),
}
