//! Discovery by a directory: leases, dead processes, and directories that cannot be used.

use std::{fs, os::unix::process::parent_id, path::Path, process::Command};

use tempfile::TempDir;
use weir_engine::ModelCard;
use weir_serve::discovery::{Directory, Discovery, Registration};

fn registration(name: &str, pid: u32) -> Registration {
    Registration {
        name: name.to_owned(),
        addr: ([127, 0, 0, 1], 4000).into(),
        pid,
        workers: vec![ModelCard {
            name: "mock".to_owned(),
            context_length: 10,
            tokenizer: "t".to_owned(),
        }],
    }
}

fn own(name: &str) -> Registration {
    registration(name, std::process::id())
}

/// The id of a process that is no more.
fn dead_pid() -> u32 {
    let mut child = Command::new("true").spawn().expect("true runs");
    child.wait().expect("it ends");
    child.id()
}

fn write(dir: &Path, registration: &Registration) {
    fs::create_dir_all(dir.join("workers")).expect("a directory");
    let json = serde_json::to_vec(registration).expect("json");
    fs::write(file(dir, &registration.name), json).expect("a file");
}

fn file(dir: &Path, name: &str) -> std::path::PathBuf {
    dir.join("workers").join(format!("{name}.json"))
}

#[tokio::test]
async fn a_registration_is_seen_until_its_lease_is_dropped() {
    let dir = TempDir::new().unwrap();
    let directory = Directory::new(dir.path().join("run"));
    let mut seen = directory.watch().await.unwrap();
    assert!(seen.borrow().is_empty());
    let first = directory.register(&own("w0")).await.unwrap();
    let _second = directory.register(&own("w1")).await.unwrap();
    let both = [own("w0"), own("w1")];
    seen.wait_for(|found| *found == both).await.unwrap();
    drop(first);
    seen.wait_for(|found| *found == [own("w1")]).await.unwrap();
    assert_eq!(*directory.watch().await.unwrap().borrow(), [own("w1")]);
}

#[tokio::test]
async fn what_is_no_registration_holds_nothing_up() {
    let dir = TempDir::new().unwrap();
    let directory = Directory::new(dir.path());
    let mut seen = directory.watch().await.unwrap();
    // Opening a pipe that nobody writes to would wait for ever.
    let pipe = Command::new("mkfifo").arg(file(dir.path(), "a-pipe")).status();
    assert!(pipe.unwrap().success());
    let forged = registration("x\"} 1\nforged_metric 1", std::process::id());
    let json = serde_json::to_vec(&forged).unwrap();
    fs::write(file(dir.path(), "forged"), json).unwrap();
    let _lease = directory.register(&own("w0")).await.unwrap();
    let found = seen.wait_for(|found| !found.is_empty());
    let found = tokio::time::timeout(std::time::Duration::from_secs(30), found).await;
    assert_eq!(*found.expect("the watch goes on").unwrap(), [own("w0")]);
}

#[tokio::test]
async fn a_changed_registration_is_seen() {
    let dir = TempDir::new().unwrap();
    let directory = Directory::new(dir.path());
    let _lease = directory.register(&own("w0")).await.unwrap();
    let mut seen = directory.watch().await.unwrap();
    let moved = Registration {
        addr: ([127, 0, 0, 1], 4001).into(),
        ..own("w0")
    };
    let _again = directory.register(&moved).await.unwrap();
    seen.wait_for(|found| *found == [moved.clone()]).await.unwrap();
}

#[tokio::test]
async fn the_file_of_a_dead_process_is_removed_and_its_name_is_free() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), &registration("w0", dead_pid()));
    write(dir.path(), &registration("w1", dead_pid()));
    let directory = Directory::new(dir.path());
    let _lease = directory.register(&own("w0")).await.unwrap();
    assert_eq!(*directory.watch().await.unwrap().borrow(), [own("w0")]);
    assert!(!file(dir.path(), "w1").exists());
}

#[tokio::test]
async fn a_process_that_dies_while_watched_disappears() {
    let dir = TempDir::new().unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let other = registration("w0", child.id());
    write(dir.path(), &other);
    let mut seen = Directory::new(dir.path()).watch().await.unwrap();
    assert_eq!(*seen.borrow(), [other]);
    child.kill().unwrap();
    child.wait().unwrap();
    seen.wait_for(Vec::is_empty).await.unwrap();
    assert!(!file(dir.path(), "w0").exists());
}

#[tokio::test]
async fn a_name_of_a_live_process_is_refused_and_a_lease_leaves_it_alone() {
    let dir = TempDir::new().unwrap();
    let directory = Directory::new(dir.path());
    let lease = directory.register(&own("w0")).await.unwrap();
    let other = registration("w0", parent_id());
    write(dir.path(), &other);
    let refused = directory.register(&own("w0")).await.unwrap_err().to_string();
    assert!(
        refused.contains("w0") && refused.contains(&parent_id().to_string()),
        "{refused}"
    );
    drop(lease);
    assert_eq!(*directory.watch().await.unwrap().borrow(), [other]);
}

#[tokio::test]
async fn a_file_that_is_no_registration_is_ignored() {
    let dir = TempDir::new().unwrap();
    let directory = Directory::new(dir.path());
    let _lease = directory.register(&own("w0")).await.unwrap();
    fs::write(file(dir.path(), "w1"), "{\"name\": 1}").unwrap();
    fs::write(file(dir.path(), "w2"), [0xff; 100]).unwrap();
    fs::create_dir(file(dir.path(), "w3")).unwrap();
    assert_eq!(*directory.watch().await.unwrap().borrow(), [own("w0")]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named_in_one_line() {
    let dir = TempDir::new().unwrap();
    let in_the_way = dir.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    for run_dir in [in_the_way.clone(), in_the_way.join("below"), "/proc/weir".into()] {
        let directory = Directory::new(&run_dir);
        let errors = [
            directory.watch().await.map(drop).unwrap_err().to_string(),
            directory
                .register(&own("w0"))
                .await
                .map(drop)
                .unwrap_err()
                .to_string(),
        ];
        for error in errors {
            assert!(
                error.contains(&*run_dir.to_string_lossy()) && !error.contains('\n'),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn names_that_are_no_file_names_are_refused() {
    let dir = TempDir::new().unwrap();
    let long = "x".repeat(65);
    for name in ["", "../up", "a/b", ".hidden", "ä", "a\"b", &long] {
        assert!(
            Directory::new(dir.path()).register(&own(name)).await.is_err(),
            "{name}"
        );
    }
}
