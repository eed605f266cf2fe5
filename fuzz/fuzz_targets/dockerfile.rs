//! Dockerfiles of strangers: parsed, planned, files selected, keys computed.

#![no_main]

use dockerfile::{
    Action, Build, BuildRequest, CacheKey, Destination, Dockerfile, Entry, ImageConfig, Listing,
};
use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fn tree() -> Listing {
    let mut tree = Listing::new();
    for path in ["a", "b/c", "b/d/e"] {
        tree.insert(path, Entry::File).expect("a good path");
    }
    tree.insert("l", Entry::Link("b".to_owned())).expect("a good path");
    tree
}

fn everything(text: &str) {
    let Ok(file) = Dockerfile::parse(text) else { return };
    let lines = text.split('\n').count();
    let Ok(build) = Build::new(file, BuildRequest::default()) else { return };
    let _ = build.images();
    let Ok(plans) = build.plan(|_| ImageConfig::default()) else { return };
    let tree = tree();
    for plan in &plans {
        for step in &plan.steps {
            assert!((1..=lines).contains(&step.line));
            assert!(!step.text.contains('\n'));
            match &step.action {
                Action::Copy(copy) => {
                    assert!(copy.destination.starts_with('/'));
                    for there in [Destination::Absent, Destination::Directory, Destination::File] {
                        let Ok(selection) = copy.select(&tree, there) else { continue };
                        for file in &selection.files {
                            assert!(file.target.starts_with('/') && !file.target.contains("/../"));
                        }
                        let _ = selection.digest(&tree, |path| Ok::<_, ()>(path.to_owned()));
                    }
                }
                Action::Run(run) => assert!(run.working_dir.starts_with('/')),
                Action::MakeDirectory { path, .. } => assert!(path.starts_with('/')),
                Action::Configure => {}
            }
        }
        let keys = plan.keys(CacheKey::of_base("x"), |_, _| Ok::<_, ()>(String::new()));
        assert_eq!(keys.map(|keys| keys.len()), Ok(plan.steps.len()));
    }
}

fuzz_target!(
    init: seeds(|| {
        [
            "FROM a AS b\nARG X=1\nENV A=$X B=\"${A:-c}\" C='d'\nWORKDIR x\nRUN --mount=type=cache,target=/c a && b\nFROM b\nCOPY --from=0 --chown=1:2 a* b/\n",
            "# escape=`\nFROM scratch\nRUN [\"a\", \"b\"]\nCOPY <<EOF <<-\"F\" /x/\n1 $a\nEOF\n\t2\n\tF\nADD . /\n",
            "FROM a\nRUN <<EOF\n#!/bin/sh\nx \\\ny\nEOF\nHEALTHCHECK --interval=1m30s --retries=3 CMD x\nEXPOSE 80-82/udp\nLABEL a=b \"c d\"=e\n",
            "FROM a\nSHELL [\"s\", \"-c\"]\nUSER a:b\nENTRYPOINT x \\\n # y\n  z\nCMD [\"c\"]\nSTOPSIGNAL SIGINT\nVOLUME /v\nMAINTAINER m\n",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    }),
    |text: &str| everything(text)
);
