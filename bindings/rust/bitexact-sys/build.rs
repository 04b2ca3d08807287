//! Finds libbitexact for the linker, in this order: BITEXACT_LIB_DIR; pkg-config; a build inside the
//! repository; a build of our own (feature `vendored`). Asks no GPU and no network, and needs no library
//! for `cargo check`, `cargo doc` or the feature `dlopen` alone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "libbitexact.so";

fn main() {
    for name in [
        "DOCS_RS",
        "BITEXACT_LIB_DIR",
        "BITEXACT_INCLUDE_DIR",
        "BITEXACT_BINDGEN",
        "BITEXACT_NO_PKG_CONFIG",
        "BITEXACT_NO_VENDOR",
        "BITEXACT_SOURCE_DIR",
        "BITEXACT_CMAKE_ARGS",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
    ] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");

    println!("cargo:include={}", include_dir().display());
    println!("cargo:api_version=1");
    if feature("BINDGEN") {
        generate(&include_dir().join("bitexact.h"));
    }
    if env::var_os("DOCS_RS").is_some() || !feature("LINK") {
        return;
    }
    println!("cargo:rustc-link-lib=dylib=bitexact");
    match from_environment().or_else(from_pkg_config).or_else(from_tree).or_else(from_vendored) {
        Some(directory) => use_directory(&directory),
        // Left to the linker, so that `cargo check` works without the library.
        None => println!(
            "cargo:warning=libbitexact was not found: set BITEXACT_LIB_DIR to the directory of {FILE}, or install \
             its pkg-config file, or load it at run time (default-features = false, features = [\"dlopen\"])"
        ),
    }
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

fn manifest_dir() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"))
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

fn include_dir() -> PathBuf {
    env::var_os("BITEXACT_INCLUDE_DIR").map_or_else(|| manifest_dir().join("include"), PathBuf::from)
}

fn from_environment() -> Option<PathBuf> {
    let directory = PathBuf::from(env::var_os("BITEXACT_LIB_DIR")?);
    assert!(
        directory.join(FILE).exists(),
        "BITEXACT_LIB_DIR is {}, which holds no {FILE}",
        directory.display()
    );
    Some(directory)
}

/// The version range: until 1.0 each minor version may change the ABI.
fn from_pkg_config() -> Option<PathBuf> {
    if env::var_os("BITEXACT_NO_PKG_CONFIG").is_some() {
        return None;
    }
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let ask = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().ok()?;
        output.status.success().then_some(output)
    };
    ask(&["--exists", "bitexact >= 0.9.0", "bitexact < 0.10.0"])?;
    let output = ask(&["--variable=libdir", "bitexact"])?;
    let directory = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    directory.join(FILE).exists().then_some(directory)
}

fn repository() -> PathBuf {
    env::var_os("BITEXACT_SOURCE_DIR").map_or_else(|| manifest_dir().join("../../.."), PathBuf::from)
}

fn from_tree() -> Option<PathBuf> {
    let build = repository().join("build");
    std::iter::once(build.clone())
        .chain(["release", "dev", "host-only"].map(|preset| build.join(preset)))
        .find(|directory| directory.join(FILE).exists())
}

fn from_vendored() -> Option<PathBuf> {
    if !feature("VENDORED") || env::var_os("BITEXACT_NO_VENDOR").is_some() {
        return None;
    }
    let source = repository();
    assert!(
        source.join("CMakeLists.txt").exists(),
        "the feature `vendored` needs the sources of bitexact: set BITEXACT_SOURCE_DIR ({} holds none)",
        source.display()
    );
    let build = out_dir().join("vendored");
    let extra = env::var("BITEXACT_CMAKE_ARGS").unwrap_or_default();
    run(Command::new("cmake")
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(&build)
        .args(["-DCMAKE_BUILD_TYPE=Release", "-DBITEXACT_DEVELOPER_MODE=OFF"])
        .args(extra.split_whitespace()));
    run(Command::new("cmake")
        .arg("--build")
        .arg(&build)
        .args(["--parallel", &env::var("NUM_JOBS").unwrap_or("2".into())]));
    Some(build)
}

/// Cargo puts search paths below its own target directory on the library path of `cargo run` and
/// `cargo test`. A link there makes them work wherever the library lies.
fn use_directory(directory: &Path) {
    let directory = directory.canonicalize().expect("the directory was just read");
    let out = out_dir();
    println!("cargo:rerun-if-changed={}", directory.join(FILE).display());
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:lib={}", directory.display());
    println!("cargo:rustc-env=BITEXACT_SYS_LIBRARY={}", directory.join(FILE).display());
    for name in [FILE, "libbitexact.so.1"] {
        let link = out.join(name);
        let _ = std::fs::remove_file(&link);
        link_to(&directory.join(FILE), &link);
    }
}

#[cfg(unix)]
fn link_to(file: &Path, link: &Path) {
    std::os::unix::fs::symlink(file, link).expect("OUT_DIR can be written");
}

#[cfg(not(unix))]
fn link_to(file: &Path, link: &Path) {
    std::fs::copy(file, link).expect("OUT_DIR can be written");
}

/// The same arguments as in tools/regenerate.
fn generate(header: &Path) {
    println!("cargo:rerun-if-changed={}", header.display());
    let program = env::var_os("BITEXACT_BINDGEN").unwrap_or_else(|| "bindgen".into());
    let command = |file: &str| {
        let mut command = Command::new(&program);
        command
            .arg(header)
            .args(["--default-macro-constant-type", "signed", "--use-core"])
            .args(["--ctypes-prefix", "::core::ffi", "--no-layout-tests"])
            .arg("--output")
            .arg(out_dir().join(file));
        command
    };
    run(command("bindings.rs").args([
        "--allowlist-file",
        ".*bitexact\\.h",
        "--",
        "-DBITEXACT_NO_PROTOTYPES",
    ]));
    run(command("functions.rs").args(["--allowlist-function", "bitexact_.*", "--no-recursive-allowlist"]));
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} ended with {status}; bindgen needs libclang, CMake a compiler"),
        Err(error) => {
            panic!("{command:?} could not be started ({error}): install it, or name it in the environment")
        }
    }
}
