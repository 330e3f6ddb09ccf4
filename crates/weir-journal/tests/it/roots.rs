//! Roots as operators give them: missing, wrong, read-only, taken, with other things in them.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use weir_journal::{Journal, OpenError, Options, inspect};

use crate::kit::{contents, meta};

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        capacity: 1 << 20,
        max_record: 4000,
        ..Options::default()
    }
}

fn refusal(root: &Path, options: &Options) -> String {
    let told = Journal::open(root, options).map(|_| ()).unwrap_err().to_string();
    assert!(!told.contains('\n'), "one line: {told}");
    told
}

#[test]
fn a_root_that_cannot_be_used_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no/such");
    assert_eq!(
        refusal(&missing, &options()),
        format!("{} does not exist", dir.path().join("no").display())
    );
    let closed = Options {
        create: false,
        ..options()
    };
    assert!(refusal(&dir.path().join("new"), &closed).ends_with("new does not exist"));
    assert!(matches!(inspect(dir.path()), Err(OpenError::Missing { .. })));

    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    assert!(refusal(&file, &options()).contains("file is not a folder, must be a folder"));
    let odd = dir.path().join("odd");
    std::fs::create_dir_all(odd.join("LOCK")).unwrap();
    assert!(refusal(&odd, &options()).contains("LOCK is not a regular file"));
    std::fs::remove_dir(odd.join("LOCK")).unwrap();
    std::fs::remove_dir(odd.join("segments")).unwrap();
    symlink(dir.path(), odd.join("segments")).unwrap();
    assert!(refusal(&odd, &options()).contains("segments is not a folder"));
}

#[test]
fn a_root_on_a_read_only_place_is_named() {
    // /proc takes no files from anyone, root included.
    let told = refusal(Path::new("/proc/weir-journal-test"), &options());
    assert!(told.contains("/proc"), "{told}");
}

#[test]
fn a_second_process_is_told_who_holds_the_root() {
    let dir = tempfile::tempdir().unwrap();
    drop(Journal::open(dir.path(), &options()).unwrap());
    let mut holder = crate::kill::hold(dir.path());
    let told = refusal(dir.path(), &options());
    assert!(told.contains("in use by the holder (process "), "{told}");
    assert!(told.contains(&holder.id().to_string()), "{told}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    Journal::open(dir.path(), &options()).unwrap();
}

#[test]
fn foreign_files_are_left_alone_and_mentioned_once() {
    let dir = tempfile::tempdir().unwrap();
    drop(Journal::open(dir.path(), &options()).unwrap());
    let segments = dir.path().join("segments");
    for name in ["notes.txt", "1.seg", ".hidden"] {
        std::fs::write(segments.join(name), b"not ours").unwrap();
        std::fs::write(dir.path().join(name), b"not ours").unwrap();
    }
    symlink("/nowhere", segments.join("link")).unwrap();
    std::fs::create_dir(segments.join("lost+found")).unwrap();
    std::fs::set_permissions(segments.join("1.seg"), std::fs::Permissions::from_mode(0o000)).unwrap();
    std::fs::write(segments.join("00000099.new"), b"half a segment").unwrap();
    let journal = Journal::open(dir.path(), &options()).unwrap();
    assert_eq!(journal.report().foreign.0, 5);
    journal.append_blocking(meta(0), b"works").unwrap();
    drop(journal);
    assert!(segments.join("notes.txt").exists() && segments.join("link").is_symlink());
    assert!(
        !segments.join("00000099.new").exists(),
        "a leftover of ours is cleared away"
    );

    symlink("/nowhere", segments.join("00000077.seg")).unwrap();
    assert!(refusal(dir.path(), &options()).contains("00000077.seg is a symbolic link"));
}

#[test]
fn a_newer_format_another_journals_segment_and_another_size_are_named() {
    let dir = tempfile::tempdir().unwrap();
    drop(Journal::open(dir.path(), &options()).unwrap());
    let other = Options {
        segment_bytes: 128 << 10,
        ..options()
    };
    assert!(refusal(dir.path(), &other).contains("segment_bytes is 131072, must be 65536"));

    let stranger = tempfile::tempdir().unwrap();
    drop(Journal::open(stranger.path(), &options()).unwrap());
    let (from, to) = (
        stranger.path().join("segments/00000001.seg"),
        dir.path().join("segments/00000055.seg"),
    );
    std::fs::copy(&from, &to).unwrap();
    assert!(refusal(dir.path(), &options()).contains("a segment of another journal"));
    std::fs::remove_file(&to).unwrap();

    let file = dir.path().join("segments/00000001.seg");
    let mut bytes = std::fs::read(&file).unwrap();
    for at in [0, 4096] {
        bytes[at + 8..at + 12].copy_from_slice(&7u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[at..at + 508]);
        bytes[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&file, &bytes).unwrap();
    assert!(refusal(dir.path(), &options()).contains("has format 7, this weir reads up to 1"));
}

#[test]
fn a_descriptor_is_not_kept_for_every_segment() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(
        dir.path(),
        &Options {
            capacity: 16 << 20,
            ..options()
        },
    )
    .unwrap();
    let fds = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter(|l| std::fs::read_link(l.path()).is_ok_and(|to| to.starts_with(dir.path())))
            .count()
    };
    while journal.stats().segments < 60 {
        journal.append_blocking(meta(0), &[1; 3000]).unwrap();
    }
    assert!(fds() <= 5, "{} descriptors", fds());
    assert_eq!(contents(&journal).len() as u64, journal.stats().open_records);
    assert!(fds() <= 5, "{} descriptors", fds());
}
