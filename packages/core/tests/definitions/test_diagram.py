import re

from stagewright.definitions import Stage, define_stage, define_workflow


def staged(id: str, name: str | None = None) -> Stage[None, object, None]:
    return define_stage(id, lambda ctx: None, input=None, output=None, name=name, config=dict)


def test_the_groups_are_drawn_from_input_to_output() -> None:
    builder = define_workflow("w", input=None).pipe(staged("load")).parallel(staged("left"), staged("right"))
    assert builder.pipe(staged("join")).build().diagram() == (
        "flowchart TD\n"
        "    start([input])\n"
        '    s1["load"]\n'
        "    start --> s1\n"
        '    subgraph g2["group 2"]\n'
        '        s2["left"]\n'
        '        s3["right"]\n'
        "    end\n"
        "    s1 --> s2\n"
        "    s1 --> s3\n"
        '    s4["join"]\n'
        "    s2 --> s4\n"
        "    s3 --> s4\n"
        "    finish([output])\n"
        "    s4 --> finish\n"
    )


def test_odd_names_and_ids_give_valid_text() -> None:
    odd = 'a "quoted" [name]\nwith --> {everything}; & <b>#1</b> end %% subgraph'
    diagram = (
        define_workflow("w", input=None).parallel(staged("end", odd), staged("0-graph")).build().diagram()
    )
    shapes = (
        r"flowchart TD",
        r"\s+\w+\(\[\w+\]\)",
        r"\s+\w+ --> \w+",
        r"\s+end",
        r'\s+subgraph g\d+\["group \d+"\]',
        r'\s+s\d+\["[\w ().,#;-]*"\]',
    )
    for line in diagram.splitlines():
        assert any(re.fullmatch(shape, line) for shape in shapes), line
    assert "#34;quoted#34;" in diagram
    assert "(end)" in diagram
