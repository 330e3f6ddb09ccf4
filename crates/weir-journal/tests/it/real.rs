//! The real system: what it is asked for, how it fails, and a disk that really loses power.
//!
//! Some of this needs a tool or a right that not every machine gives; such a test says that it did not run.

use std::path::Path;
use std::process::Command;

use weir_journal::{AppendError, Journal, Options};

use crate::kit::{contents, meta, payload};

const CHILD: &str = "WEIR_JOURNAL_REAL_CHILD";

fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        capacity: 64 << 20,
        max_record: 40_000,
        ..Options::default()
    }
}

fn may_run(program: &str, args: &[&str]) -> bool {
    let runs = Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|out| out.status.success());
    if !runs {
        println!("not run: {program} {args:?} does not work here");
    }
    runs
}

/// The child's side.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (role, root) = task.split_once(' ').unwrap();
    match role {
        "appends" => appends(Path::new(root)),
        "fills" => fills(Path::new(root)),
        "fails" => fails(Path::new(root)),
        _ => durable(Path::new(root)),
    }
}

fn child_args() -> [String; 5] {
    let exe = std::env::current_exe().unwrap().display().to_string();
    [
        exe,
        "--exact".into(),
        "real::child".into(),
        "--nocapture".into(),
        "--test-threads=1".into(),
    ]
}

fn appends(root: &Path) {
    let journal = Journal::open(root, &options()).unwrap();
    // The trace is read from here on.
    let _ = std::fs::symlink_metadata("/marker-start");
    for _ in 0..10_000 {
        let seq = journal.append_blocking(meta(0), &[1; 256]).unwrap();
        journal.settle(seq);
    }
    let _ = std::fs::symlink_metadata("/marker-end");
}

#[test]
fn ten_thousand_appends_ask_the_system_for_no_folder_and_no_stat() {
    if !may_run("strace", &["-o", "/dev/null", "true"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let root = dir.path().join("root");
    let run = Command::new("strace")
        .args(["-f", "-e", "trace=%file,%desc", "-o"])
        .arg(&trace)
        .args(child_args())
        .env(CHILD, format!("appends {}", root.display()))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = std::fs::read_to_string(&trace).unwrap();
    let (_, rest) = text.split_once("/marker-start").unwrap();
    let (between, _) = rest.split_once("/marker-end").unwrap();
    let calls = |name: &str| between.matches(&format!(" {name}(")).count();
    assert!(calls("pwrite64") >= 10_000 && calls("fdatasync") >= 10_000);
    let folder: usize = [
        "getdents64",
        "getdents",
        "stat",
        "statx",
        "lstat",
        "newfstatat",
        "fstat",
        "statfs",
    ]
    .into_iter()
    .map(calls)
    .sum();
    // The marker at the end is itself a call that looks at a file.
    assert!(folder <= 1, "{folder} calls that list or stat");
}

fn fails(root: &Path) {
    let journal = Journal::open(root, &options()).unwrap();
    let mut refused = 0;
    for n in 0..400 {
        match journal.append_blocking(meta(0), &payload(n, 900)) {
            Ok(seq) => {
                assert_eq!(refused, 0, "acknowledged after a failure");
                println!("\nacked {seq} {n}");
            }
            Err(AppendError::Poisoned(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    println!("\nrefused {refused}");
    // A close must not hide behind the failure either.
    std::process::exit(0);
}

#[test]
fn a_failure_injected_into_the_real_calls_stops_the_journal() {
    if !may_run("strace", &["-o", "/dev/null", "true"]) {
        return;
    }
    let faults = [
        ("fdatasync:error=EIO:when=40", true),
        ("pwrite64:error=EIO:when=60", true),
        ("pwrite64:error=ENOSPC:when=60", true),
        ("pwrite64:error=EINTR:when=60+20", false),
    ];
    for (fault, stops) in faults {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let run = Command::new("strace")
            .args([
                "-f",
                "-o",
                "/dev/null",
                "-e",
                "trace=fdatasync,pwrite64",
                "-e",
                &format!("inject={fault}"),
            ])
            .args(child_args())
            .env(CHILD, format!("fails {}", root.display()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{fault}: {text}");
        let refused = text
            .lines()
            .find_map(|line| line.strip_prefix("refused "))
            .unwrap();
        assert_eq!(refused != "0", stops, "{fault}: {refused} refused");
        let journal = Journal::open(&root, &options()).unwrap();
        let found = contents(&journal);
        for line in text.lines().filter_map(|line| line.strip_prefix("acked ")) {
            let (seq, n) = line.split_once(' ').unwrap();
            let wanted = (seq.parse().unwrap(), payload(n.parse().unwrap(), 900));
            assert!(found.contains(&wanted), "{fault}: lost {seq}");
        }
    }
}

fn fills(root: &Path) {
    let journal = Journal::open(&root.join("journal"), &options()).unwrap();
    let mut kept = Vec::new();
    let fill = |kept: &mut Vec<(u64, Vec<u8>)>| loop {
        let body = payload(kept.len() as u64, 30_000);
        match journal.append_blocking(meta(0), &body) {
            Ok(seq) => kept.push((seq, body)),
            Err(e) => break e,
        }
    };
    let ballast = root.join("ballast");
    std::fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    let told = fill(&mut kept);
    assert!(
        matches!(told, AppendError::Full { needed, free, .. } if needed > free),
        "{told}"
    );
    assert!(contents(&journal) == kept);
    let before = kept.len();
    std::fs::remove_file(ballast).unwrap();
    let told = fill(&mut kept);
    assert!(matches!(told, AppendError::Full { .. }), "{told}");
    assert!(
        kept.len() > before + 100,
        "{} more once space was back",
        kept.len() - before
    );
    drop(journal);
    let journal = Journal::open(&root.join("journal"), &options()).unwrap();
    assert!(contents(&journal) == kept);
    println!("\nfilled {}", kept.len());
}

#[test]
fn a_full_tmpfs_refuses_loses_nothing_and_goes_on_when_space_returns() {
    if !may_run("unshare", &["-Urm", "true"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().display().to_string();
    let script = format!("mount -t tmpfs -o size=16m tmpfs {place} && exec \"$@\"");
    let run = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &script, "sh"])
        .args(child_args())
        .env(CHILD, format!("fills {place}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success() && text.contains("filled"),
        "{text} {}",
        String::from_utf8_lossy(&run.stderr)
    );
}

fn durable(root: &Path) {
    let journal = Journal::open(&root.join("journal"), &options()).unwrap();
    for n in 0..300 {
        let seq = journal.append_blocking(meta(0), &payload(n, 3000)).unwrap();
        println!("\nacked {seq} {n}");
    }
    // The disk is cut off under the running process, its caches with it.
    let shutdown =
        "import fcntl,os,struct,sys; fcntl.ioctl(os.open(sys.argv[1],0),0x8004587d,struct.pack('I',2))";
    let cut = Command::new("python3")
        .args(["-c", shutdown])
        .arg(root)
        .status()
        .unwrap();
    println!("\ncut {}", cut.success());
    let after = journal.append_blocking(meta(0), b"never");
    println!("\nafter {}", after.is_ok());
    std::process::exit(0);
}

#[test]
fn what_was_acknowledged_survives_an_ext4_that_is_shut_down_without_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let (image, place) = (dir.path().join("image"), dir.path().join("mounted"));
    std::fs::create_dir(&place).unwrap();
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (image, at) = (image.display().to_string(), place.display().to_string());
    let mount = || may_run("mount", &["-o", "loop", &image, &at]);
    if !may_run("python3", &["-c", "pass"]) || !may_run("mkfs.ext4", &["-q", &image]) || !mount() {
        return;
    }
    let [exe, args @ ..] = child_args();
    let run = Command::new(exe)
        .args(args)
        .env(CHILD, format!("durable {at}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let unmounted = Command::new("umount").arg(&at).status().unwrap().success();
    assert!(unmounted && text.contains("cut true"), "{text}");
    assert!(
        text.contains("after false"),
        "nothing is acknowledged on a dead disk"
    );
    assert!(mount(), "the image mounts again");
    let checked = std::panic::catch_unwind(|| {
        let journal = Journal::open(&place.join("journal"), &options()).unwrap();
        let found = contents(&journal);
        let acked: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("acked "))
            .collect();
        assert_eq!(acked.len(), 300);
        for line in acked {
            let (seq, n) = line.split_once(' ').unwrap();
            let wanted = (seq.parse().unwrap(), payload(n.parse().unwrap(), 3000));
            assert!(found.contains(&wanted), "lost {seq}");
        }
    });
    Command::new("umount").arg(&at).status().unwrap();
    checked.unwrap();
}
