//! A scripted `die` kills its process as SIGKILL would: seen from outside, in a child process.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use weir_engine::{
    Engine, FaultKind,
    scripted::{ScriptedConfig, ScriptedEngine},
};

use crate::{recorder::Recorder, scripted::script};

/// Names this test in the child.
const VICTIM: &str = "die::victim";
const MARK: &str = "WEIR_TEST_VICTIM";

#[test]
fn a_process_that_dies_is_killed_by_sigkill() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", VICTIM, "--nocapture"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(9), "{child:?}");
}

/// In the child: plays a script that dies. Alone it only checks that it is not the child.
#[tokio::test]
async fn victim() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let engine = ScriptedEngine::start(&ScriptedConfig::default());
    let (sink, recorder) = Recorder::new();
    engine
        .submit(script("weir", Some((1, FaultKind::Die))), sink)
        .unwrap();
    recorder.end().await;
    panic!("the process outlived its script: {:?}", recorder.ended());
}
