"""What every command prints under --json, as JSON schemas (draft 2020-12): one per command, and one of errors.

A new key is one line here; `python tools/make_json.py` then rewrites docs/reference/json.md. VERSIONS grows where a key
goes or changes its meaning, and not where one is added. Keys that nobody wrote down are refused by the tests.
"""

from __future__ import annotations

from specgrad.check.verdicts.arithmetic_classes import CLASSES, FLOAT32
from specgrad.check.verdicts.judge import SEVERITY

from .json_parts import (
    Schema,
    bound,
    choice,
    command_schema,
    count,
    integer,
    list_of,
    map_of,
    number,
    object_of,
    or_null,
    text,
)

KINDS = choice(*SEVERITY)
CAMPAIGN = text("the kind of campaign: conformance, audit, certify, tiles")
RANGE = {
    "least": number("if all shards are like the fastest of these"),
    "mean": number("if they are like these on average"),
    "most": number("if they are like the slowest of these"),
}
SHAPE = list_of(count("a size"), "the sizes of all axes")
INDEX = list_of(
    count("an index"), "a cell: one index per axis; before them the number of the point, if there are several"
)
VERSIONS_USED = map_of(text("a version"), "the packages that were used, with their versions")
NOTES = list_of(text("a sentence"), "what else a reader should know")
DEPLOYMENT = map_of(text("a sentence"), "the executions that this is about, in sentences")
CLASSES_OF = map_of(
    object_of(
        "the classes of one operator",
        covered=count("classes with a case"),
        listed=count("classes in all, those without a case too"),
        classes=list_of(
            object_of(
                "one class",
                type=text("the element type, as tags write it"),
                zone=text("the word of its tag"),
                kind=choice("type", "shape", "broadcasting", "constraint", "function", "risk"),
                text=text("what it holds"),
                cases=count("how many were written; 0 under --list"),
            ),
            "by zone and type",
        ),
        missing=map_of(text("why"), "classes that are known and not drawn"),
    ),
    "by ONNX's name",
)
INCOMPLETE = text("what vectors do not show")
DIFFERENCE = object_of(
    "the largest difference from the exact values",
    absolute=number("its size"),
    relative=number("over the exact value there"),
    ulps=number("in units of the last place of the exact value there"),
    index=INDEX,
)
CLASS = text(f"a class of --accept ({FLOAT32}, {', '.join(c.name for c in CLASSES)}), or the layer's own type")
LAYER = object_of(
    "one layer, by its own name in the model",
    layer=text("its name"),
    operator=text("its operator, with the attributes that shape it"),
    shape=SHAPE,
    dtype=text("the format of its values: float32, float16, bfloat16, uint8, int32, ..."),
    verdict=KINDS,
    ratio=or_null(number("a share"), "the largest share of its allowance that any cell used; null: infinitely much"),
    detail=text("the verdict in words"),
    arithmetic=or_null(CLASS, "the narrowest arithmetic that explains it; null: none, or not judged"),
    optional={
        "worst_index": INDEX,
        "actual": number("what the worst cell holds"),
        "expected": number("the exact value there"),
        "allowed": number("the proven bound on rounding there"),
        "difference": {**DIFFERENCE, "description": "the largest difference from the whole model's exact values"},
        "own_error": {**DIFFERENCE, "description": "the largest error that the layer itself made"},
        "share": number("the part of the output's difference that its own error explains, to first order"),
    },
)
ATTRIBUTION = object_of(
    "which layers explain the difference at the output",
    output={**DIFFERENCE, "description": "at the output"},
    shares=map_of(number("a share"), "by layer, the largest first; they sum to `explained`"),
    explained=number("1 as far as the first order holds"),
    estimate=number("an estimate, not a bound: the standard deviation of a correct runtime's error there"),
    order=choice("first"),
)
COVERAGE = object_of(
    "how much of the model was judged",
    layers=count("layers that were judged"),
    of_layers=count("all layers"),
    multiply_adds=count("their multiply-adds"),
    of_multiply_adds=count("all multiply-adds that could be counted"),
    uncounted=list_of(text("a layer"), "layers whose multiply-adds nobody knows"),
)
BLIND_SPOTS = object_of(
    "how sharp a verdict on outputs alone is",
    points=count("inputs that the model ran on"),
    cells=count("output cells that were judged, of all points"),
    smallest=number("what is allowed in the narrowest cell"),
    largest=number("what is allowed in the widest cell"),
    tried=count("usual faults that were planted in the model, one at a time, and computed exactly"),
    detected=count("those whose effect is more than twice what is allowed"),
    undetected=list_of(text("a layer and a fault"), "the others: they could be taken for rounding"),
)
ASKED = list_of(
    object_of(
        "a runtime's answer at the counterexample",
        who=choice("torch", "module", "onnxruntime"),
        outcome=choice("breaks it", "does not break it", "does not count", "no answer"),
        optional={
            "y": list_of(number("an output"), "the outputs that it computes"),
            "reason": text("why there are none, or why they do not count"),
        },
    ),
    "everybody who was asked: torch (specgrad's engine), module (the PyTorch module that was given), onnxruntime",
)
COUNTEREXAMPLE = object_of(
    "an input in the property's box that breaks it",
    x={"type": "array", "description": "the input in float32, as the network was run on it: nested lists of its shape"},
    y=list_of(number("an output"), "the outputs there"),
    confirmed=list_of(text("an engine"), "where it was run, and broke the property"),
    asked=ASKED,
    exact_outputs_break_it=or_null(
        {"type": "boolean"}, "whether the exact outputs break it; null: not known well enough"
    ),
    optional={
        "point": list_of(text("a decimal"), "where x is rounded: the point of the property, flat and exact"),
        "named": {"type": "object", "description": "of several inputs, outputs or networks: each by its name"},
    },
)
UNKNOWN = object_of(
    "unknown after a search: how far it came, and what would help",
    problems=count("sub-problems that were bounded"),
    rate=number("of them per second"),
    settled=or_null(number(""), "the share of the box of inputs that is settled; null: not known"),
    seconds_more=or_null(number(""), "if what is left is like what is settled; null: nobody can say"),
    margin=or_null(number(""), "of the open part that is farthest from proven: not above 0"),
    box=list_of(
        object_of("", input=count("its number"), low=number("its ends in that part"), high=number("")),
        "inputs that were cut",
    ),
    rounding={"type": "boolean", "description": "that part would be excluded if nothing were rounded"},
    layer=or_null(
        object_of("", name=text("the layer that loses most there"), share=number("of what is lost")), "null: not known"
    ),
)
REPORT = object_of(
    "with --html: what the page shows",
    layers=list_of(
        object_of(
            "one operator",
            name=text("of its node"),
            operator=text("with its parameters"),
            shape=SHAPE,
            widest=number("its widest box over the inputs of the first case; inf: unbounded"),
            mean=number("of the widths of its cells, about"),
            bending=count("cells of a function that bends"),
            unstable=count("those whose box has a bend inside"),
            optional={"growth": number("its widest box over the widest one that it reads")},
        ),
        "in order; empty: no boxes were computed",
    ),
    optional={
        "trees": list_of(
            list_of(
                object_of(
                    "one tree of cuts",
                    leaves=count("parts that are not cut"),
                    depth=count("the most cuts above a leaf"),
                    cuts=map_of(count("how many"), "by kind: input, node, winner"),
                    most_cut=list_of(
                        object_of("one cell", cell=text("of an input or a layer"), cuts=count("how many")),
                        "the cells that were cut most",
                    ),
                ),
                "of one case",
            ),
            "how the question was divided, by case",
        ),
        "open_part": object_of(
            "unknown: the part that is farthest from proven",
            margin=number("not above 0"),
            cuts=list_of(text("a cell of a layer and its side"), "cuts that are none of inputs"),
            box=list_of(
                object_of(
                    "one input",
                    cell=text("its name"),
                    low=number("its ends in this part"),
                    high=number(""),
                    whole_low=number("its ends in the question"),
                    whole_high=number(""),
                ),
                "inputs that were cut",
            ),
        ),
        "original": object_of(
            "what the counterexample was moved from",
            about=text("the given input, or the middle of the box"),
            x={"type": "array", "description": "the input, as nested lists of its shape"},
            y=list_of(number("an output"), "the outputs there"),
            moved=count("cells in which both differ"),
            farthest=number("the largest difference of a cell"),
        ),
    },
)

ANY_DECISION = {"description": "a class, a list of classes, or 0 and 1 for no and yes"}
SAMPLE = object_of(
    "one sample",
    number=count("its place in the data"),
    verdict=choice("proven", "not proven", "differs"),
    decision=or_null(ANY_DECISION, "what is decided; null where there are many decisions"),
    decisions=count("how many decisions there are: one, or one per pixel"),
    unproven=count("how many of them are not proven"),
    margin=or_null(number(""), "of the comparison nearest to turning, at exact values; null: not known"),
    tolerance=or_null(number(""), "what executions may take from it; null: nothing is proven"),
    between=list_of(count("a flat number"), "the outputs that are compared there; one for a threshold"),
    seconds=number("spent on it"),
    optional={
        "reason": text("why nothing is known"),
        "executions": list_of(
            object_of(
                "a concrete execution",
                name=text("the runtime with its version, or the order of its sums"),
                decision={**ANY_DECISION, "description": "what it decides"},
                outputs=map_of(number("an output"), "by flat number; all, or those that decide"),
                optional={
                    "input": list_of(number("a cell"), "with --eps: the input, flat"),
                    "asked": list_of(
                        object_of(
                            "who was asked at that input",
                            who=text("torch: our engine; module: the one that was given; onnxruntime, on the file"),
                            outcome=choice("breaks it", "does not break it", "does not count", "no answer"),
                        ),
                        "with --eps: whether it is decided differently there",
                    ),
                },
            ),
            "two that decide differently",
        ),
        "outside": list_of(text("a runtime"), "outputs outside the proven bounds: it executes something else"),
    },
)
CERTIFICATE = object_of(
    "with --certificate: what was written",
    file=or_null(text(""), "the file; null: none was written, and the exit code is 2 at least"),
    optional={"reason": text("why there is none")},
)

# --- commands ---------------------------------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "show": command_schema(
        "show",
        "the layers of a model",
        choice("ok"),
        layers=list_of(
            object_of(
                "one layer",
                name=text("its name"),
                operator=text("its operator"),
                shape=SHAPE,
                parameters=count("parameters that it is the first to use"),
                multiply__adds=count("multiply-adds"),
                optional={"receptive field": text("the input cells that one output reads, per axis; or all")},
            ),
            "in the order of the model, inputs first",
        ),
        total=text("layers, nodes, parameters and multiply-adds, in one line"),
        notes=list_of(text("a sentence"), "nodes that are passed over, with the reason"),
    ),
    "audit": command_schema(
        "audit",
        "a model on a runtime, layer by layer",
        KINDS,
        model=text("the file, or the module's class"),
        runtime=text("the runtime"),
        versions=VERSIONS_USED,
        first_divergent=or_null(LAYER, "the first layer that rounding does not explain"),
        export=or_null(LAYER, "a layer that the exported file no longer computes as the module does"),
        layers=list_of(LAYER, "in the order of the model"),
        attribution=or_null(ATTRIBUTION, "null: no difference, or none that can be followed"),
        coverage=COVERAGE,
        whole={**LAYER, "description": "the outputs of the model as it is, as if they were those of one layer"},
        blind_spots=or_null(
            BLIND_SPOTS, "what could not be seen, where outputs alone were judged and explained; else null"
        ),
        notes=NOTES,
        script=text("a program that reproduces the first layer's fault; empty if there is none"),
        deployment=map_of(DEPLOYMENT, 'what a correct execution is, for "layers" and for the "whole" model'),
    ),
    "conformance": command_schema(
        "conformance",
        "a runtime against the contract, operator by operator",
        choice("ok", "differs", "times out", "cannot tell"),
        runtime=text("the runtime"),
        versions=VERSIONS_USED,
        seed=count("the seed of the questions"),
        operators=map_of(
            object_of(
                "how many questions ended how",
                {kind: count(f"questions: {kind}") for kind in SEVERITY},
                ratio=number("the largest share of its allowance that any answer used"),
            ),
            "by operator",
        ),
        refusals=map_of(map_of(count("how often"), "by the runtime's own words"), "by operator"),
        findings=list_of(
            object_of(
                "one fault, shrunk",
                operator=text("the operator"),
                gradient={"type": "boolean", "description": "whether its gradient was asked"},
                rule=text("the label of the rule that is broken"),
                about=text("the rule in words"),
                question=text("the smallest question that shows it"),
                verdict=KINDS,
                detail=text("the verdict in words"),
                script=text("a program that shows it"),
            ),
            "one of each sort",
        ),
        deployment=DEPLOYMENT,
    ),
    "describe": command_schema(
        "describe",
        "conformance --describe: how a kernel is called",
        choice("ok"),
        operators=map_of(
            object_of(
                "one operator",
                meaning=text("its formula and its rules"),
                arrays=map_of(SHAPE, "its arrays in order, with the shapes of one question"),
                left_out=list_of(text("an array"), "arrays that some questions leave out"),
                attributes=map_of(
                    object_of(
                        "one attribute",
                        type=text("of its values"),
                        asked=text("which values questions have"),
                        meaning=text("in words"),
                    ),
                    "all are passed, always, by name",
                ),
            ),
            "by operator",
        ),
    ),
    "runtimes": command_schema(
        "runtimes",
        "the runtimes that are known",
        choice("ok"),
        runtimes=map_of(or_null(VERSIONS_USED, "null: not installed"), "by name"),
        optional={"page": text("with --write: the page that was written")},
    ),
    "explain": command_schema(
        "explain",
        "what one output cell is computed from",
        choice("ok"),
        layer=text("its layer"),
        operator=text("its operator"),
        shape=SHAPE,
        index=INDEX,
        taps=list_of(
            object_of("one tap of the window", tap=INDEX, reads=or_null(INDEX, "the input cell; null: padding")),
            "empty for an operator without a window",
        ),
        channels=or_null(list_of(count("a channel"), ""), "the first and the last input channel that it reads"),
        divisor=or_null(text(""), "of an average, and why"),
        inputs=map_of(
            list_of(or_null(list_of(count("an index"), ""), "first and last index; null: all"), "per axis"),
            "outside these cells of an input nothing is read",
        ),
    ),
    "rule": command_schema(
        "rule",
        "a rule of the contract, or all of them",
        choice("ok"),
        {
            "rule": text("the label"),
            "text": text("formula, example, who enforces it"),
            "rules": map_of(text("a title"), "without a label: every label with its title"),
        },
    ),
    "certify": command_schema(
        "certify",
        "whether a property holds for every execution",
        choice("holds", "violated", "unknown"),
        margins=list_of(
            list_of(number("a margin"), "by alternative"), "by case: how far each alternative of the property is away"
        ),
        seconds=map_of(number("seconds"), "by stage of the search"),
        problems=count("subproblems of the branch and bound"),
        deployment=DEPLOYMENT,
        optional={
            "notes": NOTES,
            "reason": text("why nothing was proven, or where the input stands"),
            "unknown": UNKNOWN,
            "counterexample": COUNTEREXAMPLE,
            "certificate": CERTIFICATE,
            "report": REPORT,
        },
    ),
    "largest": command_schema(
        "largest",
        "certify --largest: how far every cell of an input may move",
        choice("holds", "violated", "unknown"),
        proven=or_null(number(""), "this eps is proven; null: not even the input itself"),
        violated=or_null(number(""), "the distance of the nearest counterexample that was found; null: none was"),
        gap=or_null(number(""), "between both"),
        reason=text("why they are not closer; empty: they are close"),
        tried=list_of(
            object_of("one eps", eps=number("how far"), verdict=text("what came out")), "in the order of the search"
        ),
        deployment=DEPLOYMENT,
        notes=NOTES,
        optional={"counterexample": COUNTEREXAMPLE, "certificate": CERTIFICATE},
    ),
    "preserve": command_schema(
        "preserve",
        "which decisions no execution of the class can change",
        choice("proven", "not proven", "differs"),
        model=text("the file, or the module's class"),
        decision=text("argmax, top-K, threshold:T, mask or mask:T"),
        eps=or_null(text("a rational"), "how far every cell of a sample may move; null: not at all"),
        samples=count("how many samples"),
        proven=count("samples whose decisions are all proven"),
        not_proven=count("samples with a decision that is neither proven nor shown to differ"),
        differ=count("samples with two executions that decide differently"),
        records=list_of(SAMPLE, "one per sample, in order; a line of the file of --checkpoint has the same keys"),
        deployment=DEPLOYMENT,
        notes=NOTES,
    ),
    "verify": command_schema(
        "verify",
        "the answer to a VNN-LIB query",
        choice("unsat", "sat", "unknown", "timed-out"),
        query=text("the file, as it was given"),
        networks=map_of(text("its file"), "by name"),
        seconds=number("spent on the query"),
        problems=count("subproblems of the search"),
        deployment=DEPLOYMENT,
        optional={
            "notes": NOTES,
            "reason": text("why there is no better answer"),
            "unknown": UNKNOWN,
            "confirmed": list_of(text("an engine"), "where the assignment was run, and satisfies the query"),
            "asked": ASKED,
            "assignment": list_of(
                object_of(
                    "one tensor",
                    name=text("as the query declares it"),
                    type=text("its element type, in the words of VNN-LIB"),
                    shape=SHAPE,
                    values=list_of(number("a cell"), "in float32, in row-major order"),
                    optional={"point": list_of(text("a decimal"), "where values are rounded: the exact cells")},
                ),
                "in the order of the declarations; cells of VNN-LIB 1.0 are the tensors X and Y",
            ),
        },
    ),
    "supports": command_schema(
        "supports",
        "what verify can answer",
        choice("ok"),
        supports=map_of(list_of(text("a line"), "as it is printed"), "by capability of the VNN-LIB standard"),
    ),
    "check-certificate": command_schema(
        "check-certificate",
        "what a certificate proves",
        choice("valid", "refused", "unknown"),
        {
            "reason": text("refused, unknown: why"),
            "network": object_of("the network", file=text("as it was given"), digest=text("of its graph and weights")),
            "property": text("the property, as it was given"),
            "cases": list_of(
                object_of(
                    "one box",
                    box=text("in words"),
                    alternatives=list_of(
                        object_of(
                            "one",
                            excluded=text("what cannot happen"),
                            margin=number("by how much"),
                            leaves=count("of the tree of cuts that proves it; 1 without cuts"),
                        ),
                        "",
                    ),
                ),
                "all boxes of the property",
            ),
            "margin": number("the least margin, rounded towards 0"),
            "checkers": list_of(text("which one"), "those that accepted it; with --proven also the one proven in Coq"),
            "program": object_of(
                "with --proven: the program that accepted it",
                path=text("where it is"),
                sha256=text("its digest"),
                is_built=or_null(
                    {"type": "boolean"}, "it is the one that make -C verified has built; null: none is here to compare"
                ),
            ),
            "arithmetic": map_of({}, "the executions, as the certificate states them"),
            "deployment": DEPLOYMENT,
            "notes": NOTES,
        },
    ),
    "accuracy": command_schema(
        "accuracy",
        "errors of every layer, for every input in a box and every execution of a class; null stands for unbounded",
        choice("bounded", "unbounded"),
        layers=list_of(
            object_of(
                "one layer, by its own name in the model; numbers are those of its worst cell",
                layer=text("its name"),
                operator=text("its operator, with the attributes that shape it"),
                shape=SHAPE,
                output={"type": "boolean", "description": "whether it is an output of the model"},
                propagated=bound("how far errors of its inputs move the exact result"),
                introduced=bound("what its own arithmetic adds; fused, that of its region up to here"),
                total=bound("no execution is farther from the exact value, in any cell"),
                low=bound("the least value of any cell, exact or computed"),
                high=bound("the largest value of any cell"),
                worst_index=INDEX,
            ),
            "in the order of the model; layers that compute nothing from the inputs are left out",
        ),
        unbounded=list_of(text("a layer"), "layers about which nothing is proven: overflow is possible, ..."),
        notes=NOTES,
        deployment=DEPLOYMENT,
        seconds=number("spent"),
    ),
    "tolerance": command_schema(
        "tolerance",
        "how far any execution can be from the exact outputs, and from another one; null stands for unbounded",
        choice("bounded", "unbounded"),
        tolerance=bound("the largest distance from the exact value, over all outputs"),
        pairwise_tolerance=bound("the most that two executions can be apart, over all outputs"),
        rtol=bound("with atol: numpy.testing.assert_allclose(a, b, rtol=rtol, atol=atol) holds for any two executions"),
        atol=bound("see rtol"),
        largest=or_null(
            object_of(
                "one cell",
                output=text("the name of the output"),
                index=INDEX,
                point=or_null(count(""), "which point; null: one input was given"),
                exact=bound("the exact value there, as float64 has it"),
                tolerance=bound("the distance there"),
                ulps=bound("the distance in units in the last place of the exact value"),
            ),
            "the cell with the largest distance; null: there is no cell",
        ),
        outputs=list_of(
            object_of(
                "one output of numbers; arrays are nested lists of its shape, with --points one axis more in front",
                name=text("its name"),
                dtype=text("the format of its values"),
                exact={"description": "the exact values, as float64 has them"},
                tolerance={"description": "per cell, the largest distance from the exact value"},
                pairwise_tolerance={"description": "per cell, the most that two executions can be apart"},
            ),
            "in the order of the model",
        ),
        layers=map_of(number("an amount"), "how much each layer contributes to the largest distance; they sum to it"),
        unbounded=list_of(text("a layer"), "layers about which nothing is proven"),
        points=or_null(count(""), "with --points: how many"),
        notes=NOTES,
        deployment=DEPLOYMENT,
        seconds=number("how long it took"),
    ),
    "tiles": command_schema(
        "tiles",
        "how far a network looks beyond a tile, and what exact tiles cost",
        choice("ok", "reads everything"),
        halo=list_of(
            object_of(
                "one spatial axis of an input; sizes are cells of it",
                input=text("the input's name"),
                axis=count("its axis"),
                before=integer("cells before a tile that it needs; negative: it begins later"),
                after=integer("cells after it"),
                align=count("tiles that begin and end at multiples of it need this halo, and are all alike"),
                crop=list_of(
                    integer("cells"),
                    "before and after, in multiples of align: for running the model itself on crops",
                ),
            ),
            "in the order of the inputs",
        ),
        reads_everything=list_of(
            object_of(
                "a layer that reads an axis from end to end; no tile alone has that",
                layer=text("its name"),
                operator=text("its operator"),
                axes=list_of(count("an axis"), "of its argument"),
                shape=SHAPE,
            ),
            "layers beyond any halo",
        ),
        plan=or_null(
            object_of(
                "tiles of the first output",
                size=SHAPE,
                tiles=count("how many"),
                kinds=count("compiled graphs that they share"),
                passes=count("with --passes: passes over the image before, one for each sum over everything"),
                multiply_adds=count("of all tiles and passes"),
                multiply_adds_at_once=count("of one run over everything"),
                peak_bytes=count("weights and the values of one tile, at most; not what kernels need for themselves"),
                peak_bytes_at_once=count("the same of one run over everything"),
            ),
            "with --tile or --memory; null: not asked for, or a layer reads everything",
        ),
    ),
    "window": command_schema(
        "window",
        "which cells a window reads, what it makes of them, what goes back; numbers are strings, as 7/3",
        choice("ok"),
        operator=choice("max_pool", "avg_pool", "conv"),
        window=text("kernel, stride, dilation and padding in short: k3 s2 p1"),
        size=SHAPE,
        out={**SHAPE, "description": "the sizes of the output"},
        weights=or_null(list_of(text("a number"), "in row-major order"), "of a convolution; null: none"),
        outputs=list_of(
            object_of(
                "one output",
                output=list_of(count("an index"), "where it stands"),
                taps=list_of(
                    object_of(
                        "one tap of its window",
                        tap=list_of(count("an index"), "its place in the kernel"),
                        position=list_of(integer("a position"), "what it reads; negative in the low padding"),
                        kind=choice("input", "padding", "beyond"),
                        share=or_null(text(""), "the derivative of the output by that cell; null: no cell"),
                    ),
                    "in row-major order",
                ),
                winner=or_null(list_of(count("an index"), "a cell"), "of a maximum: the cell that it took"),
                value=text("what it is"),
                formula=text("how it comes about, in numbers"),
                cotangent=text("what is sent back from it"),
            ),
            "in row-major order",
        ),
        cells=list_of(
            object_of(
                "one cell of the input",
                cell=list_of(count("an index"), "where it stands"),
                value=text("what it is"),
                cotangent=text("what it gets from all outputs"),
            ),
            "in row-major order",
        ),
        svg=or_null(text(""), "with --svg: the file"),
    ),
    "campaign-estimate": command_schema(
        "campaign-estimate",
        "what a campaign will cost, from three of its shards",
        choice("ok", "crashed"),
        kind=CAMPAIGN,
        shards=count("in all"),
        tried=list_of(
            object_of("one shard", shard=count("its number"), seconds=number("by the clock, on one core")),
            "those that were run; nothing of them is recorded",
        ),
        crashed=list_of(
            object_of("one shard", shard=count("its number"), how=text("in words")), "those that ended without a result"
        ),
        rows_per_shard=number("verdicts of one shard, on average"),
        start_seconds=number("until a worker begins with its first shard"),
        core_hours=object_of("of all shards, without the start of workers", **RANGE),
        cost=or_null(object_of("core-hours times --price", **RANGE), "null: no price was given"),
    ),
    "campaign-run": command_schema(
        "campaign-run",
        "what one run of a campaign did",
        choice("ok", "crashed"),
        kind=CAMPAIGN,
        folder=text("where the records lie: a folder, or the address of an object store"),
        shards=count("in all"),
        before=count("done before this run"),
        run=count("done by this run"),
        crashed=count("shards that were given up, by this run or before"),
        deaths=count("workers that died while this run went on"),
        seconds=number("how long it took"),
    ),
    "campaign-status": command_schema(
        "campaign-status",
        "how far a campaign is, from its records alone",
        choice("ok", "unfinished", "crashed"),
        kind=text("the kind of campaign that lies there"),
        folder=text("where the records lie"),
        shards=count("in all"),
        done=count("with a result"),
        crashed=list_of(count("a shard"), "given up"),
        left=count("without a record"),
        per_second=or_null(number(""), "shards per second when it was last at work; null: too few to say"),
        seconds_left=or_null(number(""), "at that rate; null: not known"),
        quiet_seconds=or_null(number(""), "since the last result was recorded; null: there is none"),
    ),
    "campaign-collect": command_schema(
        "campaign-collect",
        "what came out of a campaign so far",
        choice("ok", "findings", "unfinished", "crashed", "cannot tell"),
        kind=CAMPAIGN,
        shards=count("in all"),
        done=count("with a result"),
        crashed=list_of(
            object_of(
                "one shard",
                shard=count("its number"),
                how=text("in words"),
                attempts=count("how often it was tried"),
            ),
            "given up",
        ),
        rows=count("verdicts"),
        counts=map_of(
            map_of(count("rows"), "by verdict"), "by operator (conformance), model and runtime (audit), model"
        ),
        findings=list_of(
            object_of(
                "findings of one sort",
                verdict=text("of the rows"),
                what=text("the smallest case"),
                detail=text("what is wrong with it"),
                times=count("rows of this sort"),
                file=or_null(text(""), "the script's name in the folder of --scripts; null: there is none"),
                row=map_of({}, "the row of the campaign that it came from"),
            ),
            "each sort once",
        ),
    ),
    "vectors": command_schema(
        "vectors",
        "test vectors that were written",
        choice("ok"),
        folder=text("where they are"),
        seed=count("the same seed draws the same numbers"),
        operators=CLASSES_OF,
        cases=count("in all"),
        cells=count("of all outputs"),
        open=count("cells of which nothing is demanded"),
        executions=DEPLOYMENT,
        incompleteness=INCOMPLETE,
    ),
    "classes": command_schema(
        "classes",
        "the classes that test vectors are drawn from (vectors --list)",
        choice("ok"),
        operators=CLASSES_OF,
        incompleteness=INCOMPLETE,
    ),
    "compare": command_schema(
        "compare",
        "whether two models are one function over real numbers",
        choice("same", "differs", "cannot tell"),
        method=text("how it was shown, in words"),
        interface=list_of(text("a sentence"), "names, types, open sizes and inputs with a default that differ"),
        executed=or_null(
            object_of(
                "executions of both that are farther apart than the tolerance of one",
                about=text("at which input"),
                output=count("the output, counted from 0 among those of numbers"),
                index=INDEX,
                values=list_of(or_null(number(""), "null: not finite"), "what each of the two gave"),
                tolerances=list_of(or_null(number(""), "null: unbounded"), "how far each may be from the exact value"),
            ),
            "with verdict same: that the spellings are not alike as programs; null: not seen, or not looked for",
        ),
        weights=or_null(
            object_of(
                "constants of two networks of one structure",
                max_difference=number("no constant differs by more from its counterpart"),
                largest=number("the largest constant of that array"),
                layers=list_of(text("a layer"), "where they differ the most: of the first model, of the second"),
            ),
            "null: the structures differ, or the models are the same",
        ),
        points=list_of(
            object_of(
                "one input",
                about=text("which"),
                lower=number("the outputs are at least so far apart at that cell"),
                upper=number("no output is farther apart at this input"),
                output=count("the output that is farthest apart, counted from 0 among those of numbers"),
                index=INDEX,
                value=number("what the first model gives there"),
                how=text("what it was computed with"),
                within_rounding=or_null(
                    {"type": "boolean"}, "whether float32 executions of both could agree there; null: not known"
                ),
                allowed=or_null(number(""), "the sum of both tolerances at that cell; null: not computed"),
            ),
            "inputs that were looked at",
        ),
        max_difference=or_null(number(""), "the largest difference that is proven: over the box, else at the inputs"),
        box=or_null(
            object_of(
                "all inputs of a box",
                max_difference=or_null(number(""), "no input sets the exact outputs farther apart; null: not known"),
                max_execution_difference=or_null(
                    number(""),
                    "no two executions of `deployment`, one of each, are farther apart; null: unknown",
                ),
                witness_difference=number(
                    "so far apart the exact outputs are, at least, at some input; 0: none was found"
                ),
                how=text("what `max_difference` was found by"),
                independent_bound=or_null(number(""), "what bounds of each model by itself would say; null: nothing"),
            ),
            "with --eps, or --low and --high; null: not asked for",
        ),
        divergent_layers=or_null(
            list_of(text("a layer"), "of the first model, of the second; empty: none"),
            "the first layers that compute what the other model computes nowhere; null: not looked for",
        ),
        first_divergent_value=or_null(
            text(""), "the first layer of the first model whose values, up to float32, the second has nowhere"
        ),
        inputs=map_of(SHAPE, "the inputs, by name: what is said holds at these sizes"),
        witness=or_null(
            {"type": "array"}, "one nested list per input: an input that shows the difference; null: none, or large"
        ),
        deployment=DEPLOYMENT,
        notes=NOTES,
        seconds=number("how long it took"),
    ),
    "evidence": command_schema(
        "evidence",
        "what is known of a model and its target",
        choice("ok", "findings", "cannot tell"),
        model=text("the file"),
        digests=map_of(text("64 hexadecimal digits"), "SHA-256 of every file that was read"),
        items=list_of(
            object_of(
                "one question",
                name=text("model, profile, layers, outputs, decisions, box, or certificate and its file"),
                question=text("in words"),
                verdict=text("a verdict of the command that answers it, or: not asked"),
                answer=text("in sentences"),
                supports=text("what it may support, in the words of ED-324/ARP6983"),
                deployment=DEPLOYMENT,
                details=or_null(
                    map_of({}, ""),
                    "what profile, audit, tolerance, preserve, accuracy or check-certificate print as --json, by its "
                    "schema; of the model, sizes by name; null: not asked, or nothing more is known",
                ),
            ),
            "in the order of the page",
        ),
        versions=VERSIONS_USED,
        purpose=list_of(text("a sentence"), "what this is, and what it is not"),
        assumptions=list_of(text("a sentence"), "what it rests on"),
        notes=NOTES,
    ),
    "profile": command_schema(
        "profile",
        "which rules of the ONNX safety profile a file breaks",
        choice("no finding", "broken", "undecided"),
        profile=choice("SONNX"),
        caveat=list_of(text("a sentence"), "what a verdict is about, and what it is not"),
        model=text("the file's name"),
        digest=text("the SHA-256 of the file, in hexadecimal"),
        box=or_null(list_of(number("an end"), "lower, upper"), "what --box said; null: nothing"),
        rules=list_of(
            object_of(
                "one rule",
                rule=text("S1 to S31"),
                level=choice("E", "W"),
                tag=text("the working group's own labels"),
                source=text("the texts"),
                version=text("their versions, in the same order"),
                says=text("the rule in words"),
                status=choice("no finding", "broken", "undecided", "not checked"),
                findings=count("how many findings it has"),
                reason=or_null(text(""), "why it was not checked; null: it was"),
            ),
            "every rule, in order; level W: the working group is undecided about it",
        ),
        findings=list_of(
            object_of(
                "one place",
                rule=text("its rule"),
                severity=choice("broken", "undecided"),
                tag=text("the working group's own labels"),
                source=text("the texts"),
                version=text("their versions, in the same order"),
                node=or_null(text(""), "the name of the node; null: it is no node"),
                index=or_null(count("a number"), "of the node, in the file's order, functions expanded; null: no node"),
                operator=or_null(text(""), "the node's operator; null: no node"),
                value=or_null(text(""), "the name of a value or tensor; null: none"),
                what=text("what is wrong there"),
                cure=text("what to do; empty: nothing that we know"),
            ),
            "rule by rule",
        ),
        notes=NOTES,
        versions=VERSIONS_USED,
        normalised=or_null(
            object_of(
                "the file that --normalise wrote, which all of the above is about",
                file=text("its name"),
                changes=map_of(count("how often"), "what was written differently"),
                shown=text("how it was shown to mean the same"),
                before=object_of(
                    "the model that was given",
                    verdict=choice("no finding", "broken", "undecided"),
                    digest=text("its SHA-256"),
                    findings=map_of(count("findings"), "by rule"),
                ),
            ),
            "null: --normalise was not given",
        ),
    ),
    "error": command_schema(
        "error",
        "instead of an answer, from any command: exit code 2 or above",
        choice("error", "cannot tell"),
        reason=text("one line, the same as on stderr"),
    ),
}
