//! What each pass makes of a pipeline, as it is shown.

use anabranch_graph::plan::{CompileOptions, Compiled, compile};
use anabranch_graph::testing::notation::pipeline;
use anabranch_graph::testing::scripted::registry;
use insta::assert_snapshot;

use crate::{Format, Pass, TextStyle, explain};

fn compiled(text: &str) -> Compiled {
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    compile(&pipeline(text), &registry(), &options).unwrap()
}

fn text(compiled: &Compiled, pass: Pass) -> String {
    explain(compiled, pass, Format::Text, TextStyle { unicode: true, color: false })
}

/// The stages and wires without what surrounds them.
fn stages(source: &str) -> String {
    let text = text(&compiled(source), Pass::Fused);
    let body = text.split_once("\n\n").unwrap().1;
    body.split_once("\ndelivery").unwrap().0.to_owned()
}

/// The example of the design: a conditional step, a step with two workers on threads, two destinations.
const EXAMPLE: &str = r#"
source pg gen sdk.batch.size=100
mask set key=a value=1 if {{ eq (index .Metadata "kind") "x" }}
upper set key=b
js script key=c workers=2
destination s3 out path=$BUCKET token=hunter22
  enc set key=d
destination log once sdk.rate.perSecond=5
dead-letters out path=letters
"#;

#[test]
fn the_lowered_plan_says_what_the_file_says() {
    assert_snapshot!(text(&compiled(EXAMPLE), Pass::Lowered), @r#"
demo: lowered plan, 11 nodes

● pg        source gen
│   sdk.batch.size=100
│   batches of 100 records
◇ mask?     branch
│   if {{ eq (index .Metadata "kind") "x" }} (native)
├─ taken
│ ● mask    set
│ │   key=a  value=1
├─ skipped
○ mask.     merge
● upper     set
│   key=b
● js        script
│   2 workers, output in input order
│   key=c
○ fan-out   a copy to each of 2 destinations
├─● s3:enc  set
│ │   key=d
│ ● s3      destination out
│     path=$BUCKET  token=***
│     up to 1,000 records per write, waits 10ms for more
└─● log     destination once
      sdk.rate.perSecond=5
      up to 1,000 records per write, waits 10ms for more, 5 records per second

delivery
  pg ─► s3: at least once, in the order of each source partition
    a crash repeats at most 16,384 records of a partition
  pg ─► log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition
  failed records ─► out: the first failure stops the pipeline
    path=letters
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
}

#[test]
fn the_rewritten_plan_has_masks() {
    assert_snapshot!(text(&compiled(EXAMPLE), Pass::Rewritten), @r#"
demo: rewritten plan, 9 nodes

● pg        source gen
│   sdk.batch.size=100
│   batches of 100 records
● mask      set
│   if {{ eq (index .Metadata "kind") "x" }} (native)
│   key=a  value=1
● upper     set
│   key=b
● js        script
│   2 workers, output in input order
│   key=c
○ fan-out   a copy to each of 2 destinations
├─● s3:enc  set
│ │   key=d
│ ● s3      destination out
│     path=$BUCKET  token=***
│     up to 1,000 records per write, waits 10ms for more
└─● log     destination once
      sdk.rate.perSecond=5
      up to 1,000 records per write, waits 10ms for more, 5 records per second

delivery
  pg ─► s3: at least once, in the order of each source partition
    a crash repeats at most 16,384 records of a partition
  pg ─► log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition
  failed records ─► out: the first failure stops the pipeline
    path=letters
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
}

#[test]
fn the_fused_plan_has_stages() {
    assert_snapshot!(text(&compiled(EXAMPLE), Pass::Fused), @r#"
demo: fused plan, 6 stages

╭ S0 read
│ pg      source gen
│   sdk.batch.size=100
│   batches of 100 records
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ mask    set
│   if {{ eq (index .Metadata "kind") "x" }} (native)
│   key=a  value=1
│ upper   set
│   key=b
╰─► S2    a processor needs its own thread
╭ S2 isolate ×2
│ js      script
│   key=c
├─► S3    every destination gets a copy
╰─► S5    every destination gets a copy
╭ S3 chain
│ s3:enc  set
│   key=d
╰─► S4    writing overlaps with the rest
╭ S4 write
│ s3      destination out
│   path=$BUCKET  token=***
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
╭ S5 write
│ log     destination once
│   sdk.rate.perSecond=5
│   up to 1,000 records per write, waits 10ms for more, 5 records per second
╰─■ delivered

delivery
  pg ─► s3: at least once, in the order of each source partition
    a crash repeats at most 16,384 records of a partition
  pg ─► log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition
  failed records ─► out: the first failure stops the pipeline
    path=letters
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
}

#[test]
fn plain_text_is_ascii() {
    let compiled = compiled(EXAMPLE);
    for pass in [Pass::Lowered, Pass::Rewritten, Pass::Fused] {
        let text = explain(&compiled, pass, Format::Text, TextStyle::default());
        assert!(text.is_ascii(), "{text}");
    }
    assert_snapshot!(explain(&compiled, Pass::Lowered, Format::Text, TextStyle::default()), @r#"
demo: lowered plan, 11 nodes

* pg        source gen
|   sdk.batch.size=100
|   batches of 100 records
? mask?     branch
|   if {{ eq (index .Metadata "kind") "x" }} (native)
+- taken
| * mask    set
| |   key=a  value=1
+- skipped
o mask.     merge
* upper     set
|   key=b
* js        script
|   2 workers, output in input order
|   key=c
o fan-out   a copy to each of 2 destinations
+-* s3:enc  set
| |   key=d
| * s3      destination out
|     path=$BUCKET  token=***
|     up to 1,000 records per write, waits 10ms for more
`-* log     destination once
      sdk.rate.perSecond=5
      up to 1,000 records per write, waits 10ms for more, 5 records per second

delivery
  pg -> s3: at least once, in the order of each source partition
    a crash repeats at most 16,384 records of a partition
  pg -> log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition
  failed records -> out: the first failure stops the pipeline
    path=letters
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
    let colored = explain(&compiled, Pass::Fused, Format::Text, TextStyle { unicode: true, color: true });
    let plain = regex::Regex::new("\x1b\\[[0-9;]*m").unwrap().replace_all(&colored, "").into_owned();
    assert_ne!(colored, plain);
    assert_eq!(plain, text(&compiled, Pass::Fused));
}

#[test]
fn diagrams() {
    let compiled = compiled(EXAMPLE);
    assert_snapshot!(explain(&compiled, Pass::Lowered, Format::Dot, TextStyle::default()), @r#"
digraph "demo" {
  rankdir=LR;
  graph [fontname="sans-serif", labelloc=b, label="demo: lowered plan\nqueues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB\npg -> s3: at least once, in the order of each source partition; a crash repeats at most 16,384 records of a partition\npg -> log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery; a crash repeats at most 16,384 records of a partition"];
  node [fontname="sans-serif", shape=box, style=rounded];
  edge [fontname="sans-serif", fontsize=10];
  n0 [label="pg\nsource gen\nsdk.batch.size=100", shape=cylinder, style=""];
  n1 [label="mask?\nif {{ eq (index .Metadata \"kind\") \"x\" }} (native)", shape=diamond, style=""];
  n2 [label="mask\nset\nkey=a\nvalue=1"];
  n3 [label="merge", shape=circle, style=""];
  n4 [label="upper\nset\nkey=b"];
  n5 [label="js\nscript\n2 workers\nkey=c"];
  n6 [label="fan-out", shape=circle, style=""];
  n7 [label="s3:enc\nset\nkey=d"];
  n8 [label="s3\ndestination out\npath=$BUCKET\ntoken=***", shape=cylinder, style=""];
  n9 [label="log\ndestination once\nsdk.rate.perSecond=5", shape=cylinder, style=""];
  n10 [label="dead-letter-queue\ndead-letter queue out\npath=letters", shape=cylinder, style=""];
  n0 -> n1;
  n1 -> n2 [label="taken"];
  n1 -> n3 [label="skipped"];
  n1 -> n10 [style=dotted, color=gray, constraint=false];
  n2 -> n3;
  n2 -> n10 [style=dotted, color=gray, constraint=false];
  n3 -> n4;
  n4 -> n5;
  n4 -> n10 [style=dotted, color=gray, constraint=false];
  n5 -> n6;
  n5 -> n10 [style=dotted, color=gray, constraint=false];
  n6 -> n7;
  n6 -> n9;
  n7 -> n8;
  n7 -> n10 [style=dotted, color=gray, constraint=false];
  n8 -> n10 [style=dotted, color=gray, constraint=false];
  n9 -> n10 [style=dotted, color=gray, constraint=false];
}
"#);
    assert_snapshot!(explain(&compiled, Pass::Fused, Format::Dot, TextStyle::default()), @r#"
digraph "demo" {
  rankdir=LR;
  graph [fontname="sans-serif", labelloc=b, label="demo: fused plan\nqueues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB\npg -> s3: at least once, in the order of each source partition; a crash repeats at most 16,384 records of a partition\npg -> log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery; a crash repeats at most 16,384 records of a partition"];
  node [fontname="sans-serif", shape=box, style=rounded];
  edge [fontname="sans-serif", fontsize=10];
  subgraph cluster_0 {
    label="S0 read"; style=rounded; color=gray;
    n0 [label="pg\nsource gen\nsdk.batch.size=100", shape=cylinder, style=""];
  }
  subgraph cluster_1 {
    label="S1 chain"; style=rounded; color=gray;
    n1 [label="mask\nset\nif {{ eq (index .Metadata \"kind\") \"x\" }} (native)\nkey=a\nvalue=1"];
    n2 [label="upper\nset\nkey=b"];
  }
  subgraph cluster_2 {
    label="S2 isolate ×2"; style=rounded; color=gray;
    n3 [label="js\nscript\n2 workers\nkey=c"];
  }
  subgraph cluster_3 {
    label="S3 chain"; style=rounded; color=gray;
    n4 [label="s3:enc\nset\nkey=d"];
  }
  subgraph cluster_4 {
    label="S4 write"; style=rounded; color=gray;
    n5 [label="s3\ndestination out\npath=$BUCKET\ntoken=***", shape=cylinder, style=""];
  }
  subgraph cluster_5 {
    label="S5 write"; style=rounded; color=gray;
    n6 [label="log\ndestination once\nsdk.rate.perSecond=5", shape=cylinder, style=""];
  }
  n7 [label="dead-letter-queue\ndead-letter queue out\npath=letters", shape=cylinder, style=""];
  n0 -> n1 [label="reading overlaps with the rest", style=bold];
  n1 -> n2;
  n2 -> n3 [label="a processor needs its own thread", style=bold];
  n2 -> n7 [style=dotted, color=gray, constraint=false];
  n3 -> n4 [label="every destination gets a copy", style=bold];
  n3 -> n6 [label="every destination gets a copy", style=bold];
  n3 -> n7 [style=dotted, color=gray, constraint=false];
  n4 -> n5 [label="writing overlaps with the rest", style=bold];
  n4 -> n7 [style=dotted, color=gray, constraint=false];
  n5 -> n7 [style=dotted, color=gray, constraint=false];
  n6 -> n7 [style=dotted, color=gray, constraint=false];
}
"#);
    assert_snapshot!(explain(&compiled, Pass::Fused, Format::Mermaid, TextStyle::default()), @r#"
%% demo: fused plan
%% queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
%% pg to s3: at least once, in the order of each source partition; a crash repeats at most 16,384 records of a partition
%% pg to log: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery; a crash repeats at most 16,384 records of a partition
flowchart LR
  subgraph S0["S0 read"]
    n0[("pg<br/>source gen<br/>sdk.batch.size=100")]
  end
  subgraph S1["S1 chain"]
    n1("mask<br/>set<br/>if #123;#123; eq #40;index .Metadata #34;kind#34;#41; #34;x#34; #125;#125; #40;native#41;<br/>key=a<br/>value=1")
    n2("upper<br/>set<br/>key=b")
  end
  subgraph S2["S2 isolate ×2"]
    n3("js<br/>script<br/>2 workers<br/>key=c")
  end
  subgraph S3["S3 chain"]
    n4("s3:enc<br/>set<br/>key=d")
  end
  subgraph S4["S4 write"]
    n5[("s3<br/>destination out<br/>path=$BUCKET<br/>token=#42;#42;#42;")]
  end
  subgraph S5["S5 write"]
    n6[("log<br/>destination once<br/>sdk.rate.perSecond=5")]
  end
  n7[("dead-letter-queue<br/>dead-letter queue out<br/>path=letters")]
  n0 ==>|"reading overlaps with the rest"| n1
  n1 --> n2
  n2 ==>|"a processor needs its own thread"| n3
  n2 -.-> n7
  n3 ==>|"every destination gets a copy"| n4
  n3 ==>|"every destination gets a copy"| n6
  n3 -.-> n7
  n4 ==>|"writing overlaps with the rest"| n5
  n4 -.-> n7
  n5 -.-> n7
  n6 -.-> n7
"#);
}

#[test]
fn json_is_for_programs() {
    let compiled = compiled(EXAMPLE);
    assert_snapshot!(explain(&compiled, Pass::Fused, Format::Json, TextStyle::default()), @r#"
{
  "pipeline": "demo",
  "pass": "fused",
  "nodes": [
    {
      "index": 0,
      "id": "pg",
      "kind": "source",
      "plugin": "gen",
      "settings": {
        "sdk.batch.size": "100"
      },
      "notes": [
        "batches of 100 records"
      ]
    },
    {
      "index": 1,
      "id": "mask",
      "kind": "processor",
      "plugin": "set",
      "workers": 1,
      "condition": {
        "text": "{{ eq (index .Metadata \"kind\") \"x\" }}",
        "native": true,
        "as_before": false
      },
      "settings": {
        "key": "a",
        "value": "1"
      }
    },
    {
      "index": 2,
      "id": "upper",
      "kind": "processor",
      "plugin": "set",
      "workers": 1,
      "settings": {
        "key": "b"
      }
    },
    {
      "index": 3,
      "id": "js",
      "kind": "processor",
      "plugin": "script",
      "workers": 2,
      "settings": {
        "key": "c"
      }
    },
    {
      "index": 4,
      "id": "s3:enc",
      "kind": "processor",
      "plugin": "set",
      "workers": 1,
      "settings": {
        "key": "d"
      }
    },
    {
      "index": 5,
      "id": "s3",
      "kind": "destination",
      "plugin": "out",
      "settings": {
        "path": "$BUCKET",
        "token": "***"
      },
      "notes": [
        "up to 1,000 records per write, waits 10ms for more"
      ]
    },
    {
      "index": 6,
      "id": "log",
      "kind": "destination",
      "plugin": "once",
      "settings": {
        "sdk.rate.perSecond": "5"
      },
      "notes": [
        "up to 1,000 records per write, waits 10ms for more, 5 records per second"
      ]
    },
    {
      "index": 7,
      "id": "dead-letter-queue",
      "kind": "dead-letter queue",
      "plugin": "out",
      "settings": {
        "path": "letters"
      }
    }
  ],
  "edges": [
    {
      "from": 0,
      "to": 1,
      "port": "out"
    },
    {
      "from": 1,
      "to": 2,
      "port": "out"
    },
    {
      "from": 2,
      "to": 3,
      "port": "out"
    },
    {
      "from": 2,
      "to": 7,
      "port": "failed"
    },
    {
      "from": 3,
      "to": 4,
      "port": "out"
    },
    {
      "from": 3,
      "to": 6,
      "port": "out"
    },
    {
      "from": 3,
      "to": 7,
      "port": "failed"
    },
    {
      "from": 4,
      "to": 5,
      "port": "out"
    },
    {
      "from": 4,
      "to": 7,
      "port": "failed"
    },
    {
      "from": 5,
      "to": 7,
      "port": "failed"
    },
    {
      "from": 6,
      "to": 7,
      "port": "failed"
    }
  ],
  "stages": [
    {
      "id": 0,
      "name": "pg",
      "kind": "read",
      "nodes": [
        0
      ]
    },
    {
      "id": 1,
      "name": "mask+upper",
      "kind": "chain",
      "nodes": [
        1,
        2
      ]
    },
    {
      "id": 2,
      "name": "js",
      "kind": "isolate",
      "workers": 2,
      "nodes": [
        3
      ]
    },
    {
      "id": 3,
      "name": "s3:enc",
      "kind": "chain",
      "nodes": [
        4
      ]
    },
    {
      "id": 4,
      "name": "s3",
      "kind": "write",
      "nodes": [
        5
      ]
    },
    {
      "id": 5,
      "name": "log",
      "kind": "write",
      "nodes": [
        6
      ]
    }
  ],
  "wires": [
    {
      "wire": {
        "from": 0,
        "to": 1
      },
      "reason": {
        "kind": "source"
      }
    },
    {
      "wire": {
        "from": 1,
        "to": 2
      },
      "reason": {
        "kind": "isolate"
      }
    },
    {
      "wire": {
        "from": 2,
        "to": 3
      },
      "reason": {
        "kind": "fan-out"
      }
    },
    {
      "wire": {
        "from": 2,
        "to": 5
      },
      "reason": {
        "kind": "fan-out"
      }
    },
    {
      "wire": {
        "from": 3,
        "to": 4
      },
      "reason": {
        "kind": "destination"
      }
    }
  ],
  "dead_letter_queue": {
    "plugin": "out",
    "window_size": 1,
    "window_nack_threshold": 0
  },
  "routes": [
    {
      "source": "pg",
      "destination": "s3",
      "delivery": "at-least-once",
      "order": "kept-per-partition",
      "replay": {
        "records": 16384,
        "copies": 1
      }
    },
    {
      "source": "pg",
      "destination": "log",
      "delivery": "at-least-once-unrepeated",
      "order": "kept-per-partition",
      "replay": {
        "records": 16384,
        "copies": 1
      }
    }
  ],
  "limits": {
    "replay_rows": 16384,
    "held_bytes": 67108864,
    "queue_strips": 4,
    "queue_bytes": 8388608
  }
}
"#);
    let lowered: serde_json::Value =
        serde_json::from_str(&explain(&compiled, Pass::Lowered, Format::Json, TextStyle::default())).unwrap();
    assert!(lowered.get("stages").is_none());
    assert_eq!(lowered["edges"].as_array().unwrap().iter().filter(|e| e["port"] == "failed").count(), 7);
}

#[test]
fn credentials_are_shown_in_no_format() {
    let compiled = compiled(EXAMPLE);
    for pass in [Pass::Lowered, Pass::Rewritten, Pass::Fused] {
        for format in [Format::Text, Format::Dot, Format::Mermaid, Format::Json] {
            let shown = explain(&compiled, pass, format, TextStyle::default());
            assert!(!shown.contains("hunter22") && !shown.contains("value-of-"), "{shown}");
        }
    }
}

#[test]
fn a_source_may_write_directly() {
    assert_snapshot!(stages("source in gen\ndestination to out\ndestination too tx\n"), @r#"
╭ S0 read
│ in   source gen
├─► S1    every destination gets a copy
╰─► S2    every destination gets a copy
╭ S1 write
│ to   destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
╭ S2 write
│ too  destination tx
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn processors_of_a_single_source_fuse_with_the_pipelines() {
    assert_snapshot!(stages(r#"
source in gen
  a set key=a
b set key=b
destination to out
  c set key=c
"#), @r#"
╭ S0 read
│ in    source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ in:a  set
│   key=a
│ b     set
│   key=b
│ to:c  set
│   key=c
╰─► S2    writing overlaps with the rest
╭ S2 write
│ to    destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn several_sources_merge_at_the_first_shared_stage() {
    assert_snapshot!(stages(r#"
source in gen
  a set key=a
source two gen
b set key=b
destination to out
"#), @r#"
╭ S0 read
│ in    source gen
╰─► S2    reading overlaps with the rest
╭ S1 read
│ two   source gen
╰─► S3    sources merge here
╭ S2 chain
│ in:a  set
│   key=a
╰─► S3    sources merge here
╭ S3 chain
│ b     set
│   key=b
╰─► S4    writing overlaps with the rest
╭ S4 write
│ to    destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
    let merging = compiled("source in gen\n  a set key=a\nsource two gen\nb set key=b\ndestination to out\n");
    let lowered = text(&merging, Pass::Lowered);
    assert_snapshot!(lowered[..lowered.find("\ndelivery").unwrap()], @r#"
demo: lowered plan, 7 nodes

┌─● in    source gen
│ ● in:a  set
│ │   key=a
├─● two   source gen
○ merge   strips as they arrive
● b       set
│   key=b
● to      destination out
    up to 1,000 records per write, waits 10ms for more
"#);
    assert_snapshot!(stages("source a gen\nsource b gen\ndestination x out\ndestination y out\n"), @r#"
╭ S0 read
│ a  source gen
├─► S2    every destination gets a copy
╰─► S3    every destination gets a copy
╭ S1 read
│ b  source gen
├─► S2    every destination gets a copy
╰─► S3    every destination gets a copy
╭ S2 write
│ x  destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
╭ S3 write
│ y  destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn a_chain_is_cut_where_a_step_waits_or_workers_differ() {
    assert_snapshot!(stages(r#"
source in gen
a set key=a
b call
c call workers=16
d set key=d workers=2
e set key=e workers=2
f set key=f workers=3
destination to out
"#), @r#"
╭ S0 read
│ in  source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ a   set
│   key=a
╰─► S2    a waiting batch must not block the chain
╭ S2 async, 4 strips in flight
│ b   call
╰─► S3    a waiting batch must not block the chain
╭ S3 async, 16 strips in flight
│ c   call
╰─► S4    a waiting batch must not block the chain
╭ S4 parallel ×2
│ d   set
│   key=d
│ e   set
│   key=e
╰─► S5    workers differ: 2 before, 3 after
╭ S5 parallel ×3
│ f   set
│   key=f
╰─► S6    writing overlaps with the rest
╭ S6 write
│ to  destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn inline_steps_between_isolated_ones_share_their_thread() {
    assert_snapshot!(stages(r#"
source in gen
a set key=a
b script key=b
c set key=c
d set key=d
e script key=e
f set key=f
g script key=g workers=2
h set key=h
i script key=i workers=2
destination to out
"#), @r#"
╭ S0 read
│ in  source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ a   set
│   key=a
╰─► S2    a processor needs its own thread
╭ S2 isolate
│ b   script
│   key=b
│ c   set
│   key=c
│ d   set
│   key=d
│ e   script
│   key=e
╰─► S3    a processor needs its own thread
╭ S3 chain
│ f   set
│   key=f
╰─► S4    a processor needs its own thread
╭ S4 isolate ×2
│ g   script
│   key=g
╰─► S5    a processor needs its own thread
╭ S5 chain
│ h   set
│   key=h
╰─► S6    a processor needs its own thread
╭ S6 isolate ×2
│ i   script
│   key=i
╰─► S7    writing overlaps with the rest
╭ S7 write
│ to  destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn equal_conditions_are_shared_between_neighbours() {
    assert_snapshot!(stages(r#"
source in gen
a set key=a if {{ eq (index .Metadata "k") "x" }}
b set key=b if {{ eq (index .Metadata "k") "x" }}
c set key=k if {{ eq (index .Metadata "k") "x" }}
writes_k set key=d if {{ eq (index .Metadata "k") "x" }}
other set key=e if {{ eq (index .Metadata "k") "y" }}
pieces split if {{ eq (index .Metadata "k") "y" }}
after_split set key=g if {{ eq (index .Metadata "k") "y" }}
cut set key=h workers=2 if {{ eq (index .Metadata "k") "y" }}
unknown script key=i if {{ eq (index .Metadata "k") "y" }}
after_unknown script key=j if {{ eq (index .Metadata "k") "y" }}
destination to out
"#), @r#"
╭ S0 read
│ in             source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ a              set
│   if {{ eq (index .Metadata "k") "x" }} (native)
│   key=a
│ b              set
│   for the same records as the previous step
│   key=b
│ c              set
│   for the same records as the previous step
│   key=k
│ writes_k       set
│   if {{ eq (index .Metadata "k") "x" }} (native)
│   key=d
│ other          set
│   if {{ eq (index .Metadata "k") "y" }} (native)
│   key=e
│ pieces         split
│   for the same records as the previous step
│ after_split    set
│   if {{ eq (index .Metadata "k") "y" }} (native)
│   key=g
╰─► S2    workers differ: 1 before, 2 after
╭ S2 parallel ×2
│ cut            set
│   if {{ eq (index .Metadata "k") "y" }} (native)
│   key=h
╰─► S3    a processor needs its own thread
╭ S3 isolate
│ unknown        script
│   if {{ eq (index .Metadata "k") "y" }} (native)
│   key=i
│ after_unknown  script
│   if {{ eq (index .Metadata "k") "y" }} (native)
│   key=j
╰─► S4    writing overlaps with the rest
╭ S4 write
│ to             destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn constant_conditions_vanish() {
    assert_snapshot!(stages(r#"
source in gen
a set key=a if true
b set key=b if false
destination to out
  c set key=c if false
"#), @r#"
╭ S0 read
│ in  source gen
╰─► S1    reading overlaps with the rest
╭ S1 chain
│ a   set
│   key=a
╰─► S2    writing overlaps with the rest
╭ S2 write
│ to  destination out
│   up to 1,000 records per write, waits 10ms for more
╰─■ delivered
"#);
}

#[test]
fn promises_per_way() {
    let text = |source: &str| {
        let text = text(&compiled(source), Pass::Fused);
        text[text.find("delivery").unwrap()..].to_owned()
    };
    assert_snapshot!(text("source in gen\ndestination a tx\n"), @r#"
delivery
  in ─► a: effectively once, in the order of each source partition
    a crash repeats no record
  failed records ─► out: the first failure stops the pipeline
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
    assert_snapshot!(text("source in gen\n  c clone\nsource too gen\n  s split\ndestination a tx\ndestination b once\n  d clone\n"), @r#"
delivery
  in ─► a: at least once, in the order of each source partition; transactions make it effectively once only if the source has no other destination, or replays exactly
    a crash repeats at most 16,384 records of a partition, 3 copies of each: 49,152 in all
  in ─► b: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition, 9 copies of each: 147,456 in all
  too ─► a: at least once, in the order of each source partition; transactions make it effectively once only if the source has no other destination, or replays exactly
    a crash repeats at most 16,384 records of a partition, each with all its pieces: the number of copies is unlimited
  too ─► b: at least once, in the order of each source partition; a write whose outcome is unknown is repeated only by recovery
    a crash repeats at most 16,384 records of a partition, each with all its pieces: the number of copies is unlimited
  failed records ─► out: the first failure stops the pipeline
limits
  queues between stages hold 4 strips and 8 MiB, the pipeline 64 MiB
"#);
}

#[test]
fn five_hundred_processors_compile_in_milliseconds() {
    let mut source = "source in gen\ndestination to out\n".to_owned();
    for i in 0..500 {
        let step = ["set key=a", "script key=b", "set key=c workers=2", "call"][i / 3 % 4];
        let condition = if i % 2 == 0 { " if {{ eq (index .Metadata \"k\") \"x\" }}" } else { "" };
        source.push_str(&format!("p{i} {step}{condition}\n"));
    }
    let (config, registry) = (pipeline(&source), registry());
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    let times = || {
        let before = anabranch_template::processor_time::taken_by_thread();
        let compiled = compile(&config, &registry, &options).unwrap();
        let compiled_in = anabranch_template::processor_time::taken_by_thread() - before;
        let shown: usize = [Format::Text, Format::Dot, Format::Mermaid, Format::Json]
            .map(|format| explain(&compiled, Pass::Fused, format, TextStyle::default()).len())
            .iter()
            .sum();
        let shown_in = anabranch_template::processor_time::taken_by_thread() - before - compiled_in;
        println!("compiled in {compiled_in:?}, {shown} bytes shown in {shown_in:?}");
        (compiled_in, shown_in)
    };
    // This limit allows for an unoptimised build and parallel tests; quadratic passes take seconds here.
    let mut tries = std::iter::repeat_with(times).take(5);
    assert!(tries.any(|(compiled_in, shown_in)| compiled_in.as_millis() < 500 && shown_in.as_millis() < 1000));
}

#[test]
fn a_live_drawing_has_a_place_for_every_number() {
    let compiled = compiled(EXAMPLE);
    let drawing = explain(&compiled, Pass::Fused, Format::Live, TextStyle::default());
    let plan = explain(&compiled, Pass::Fused, Format::Json, TextStyle::default());
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let nodes = plan["nodes"].as_array().unwrap().iter().filter(|node| node["kind"] != "dead-letter queue");
    let edges = plan["edges"].as_array().unwrap().iter().filter(|edge| edge["port"] != "failed");
    let places = |of: &str| drawing.matches(of).count();
    for node in nodes.clone() {
        assert_eq!(places(&format!("data-node=\"{}\"", node["index"])), 1, "{node}");
    }
    for edge in edges.clone() {
        // The line itself, and the place of its number.
        assert_eq!(places(&format!("data-from=\"{}\" data-to=\"{}\"", edge["from"], edge["to"])), 2, "{edge}");
    }
    assert_eq!((places("class=\"live\""), places("class=\"flow")), (nodes.count(), edges.count()));
    assert!(drawing.starts_with("<svg") && !drawing.contains("<style"));
}
