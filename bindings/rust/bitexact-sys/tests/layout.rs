//! Sizes, offsets and constants of the bindings against what a C compiler says about the header.
use bitexact_sys::*;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
const BINDINGS: &str = include_str!("../src/bindings.rs");

/// The size of the member that `get` takes the address of.
fn member_size<S, T>(_get: fn(*const S) -> *const T) -> usize {
    size_of::<T>()
}

macro_rules! layouts {
    ($($name:ident { $($field:ident),* })*) => {
        /// (struct, its size, [(member, offset, size)])
        fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize, usize)>)> {
            vec![$((stringify!($name), size_of::<$name>(), vec![$((
                stringify!($field),
                offset_of!($name, $field),
                // SAFETY: only an address is formed, and only in a function that is never called.
                member_size(|s: *const $name| unsafe { &raw const (*s).$field }),
            )),*])),*]
        }
    };
}

layouts! {
    bitexact_context_options { struct_size, flags, device, gate_policy, reference_mode, reserved }
    bitexact_context_info { struct_size, flags, device, gate_policy, reference_mode, architecture, image, image_architecture, driver_version, runtime_version, position_errors, device_name }
    bitexact_silu_mul_params { struct_size, flags, dtype, compute_dtype, silu, reserved, batches, rows, cols, gate, gate_batch_stride, gate_row_stride, up, up_batch_stride, up_row_stride, out, out_batch_stride, out_row_stride, clamp, limit_bits }
    bitexact_silu_mul_reference { struct_size, flags, out, out_batch_stride, out_row_stride }
    bitexact_rope_params { struct_size, flags, dtype, table_dtype, compute_dtype, combine, pairing_in, pairing_out, batches, tokens, q_heads, k_heads, head_dim, rotary_dim, table_width, table_rows, q_in, q_in_batch_stride, q_in_token_stride, q_in_head_stride, q_out, q_out_batch_stride, q_out_token_stride, q_out_head_stride, k_in, k_in_batch_stride, k_in_token_stride, k_in_head_stride, k_out, k_out_batch_stride, k_out_token_stride, k_out_head_stride, cos, cos_batch_stride, cos_token_stride, cos_head_stride, cos_element_stride, sin, sin_batch_stride, sin_token_stride, sin_head_stride, sin_element_stride, positions, positions_batch_stride, positions_token_stride, positions_dtype, reserved }
    bitexact_rope_reference { struct_size, flags, q, q_batch_stride, q_token_stride, q_head_stride, k, k_batch_stride, k_token_stride, k_head_stride }
    bitexact_gate_report { struct_size, flags, operation, state, reason, basis, status, dtype, table_dtype, compute_dtype, numerics, mismatch_basis, mismatch_tensor, reserved, fused_calls, reference_calls, declined_calls, checks, compared, nan_payload_differences, mismatches, mismatch_index, mismatch_expected, mismatch_actual, kernel_name }
    bitexact_certify_params { struct_size, flags, kernel_index, first_part, part_count }
    bitexact_certify_report { struct_size, flags, kernel_index, parts_total, parts_done, exhaustive_compared, sampled_compared, mismatches, nan_payload_differences, digest, mismatch_inputs, mismatch_expected, mismatch_actual }
    bitexact_api { struct_size, api_version, version, build_info, status_string, last_error, last_cuda_error, context_options_init, context_info_init, silu_mul_params_init, silu_mul_reference_init, rope_params_init, rope_reference_init, gate_report_init, certify_params_init, certify_report_init, context_create, context_destroy, context_set_log, context_get_info, fused_silu_mul, fused_silu_mul_can_use, fused_silu_mul_verify, fused_rope, fused_rope_can_use, fused_rope_verify, gate_warm_up, gate_count, gate_get, gate_reset, certify }
}

/// Compiles and runs a C program that includes the header; returns its output as "name value" pairs.
fn run_c(name: &str, body: &str) -> BTreeMap<String, i64> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = directory.join(format!("{name}.c"));
    let program = directory.join(name);
    let text =
        format!("#include <stdio.h>\n#include <bitexact.h>\nint main(void) {{\n{body}  return 0;\n}}\n");
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Werror", "-I", HEADER_DIR, "-DBITEXACT_NO_PROTOTYPES", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler is needed for this test");
    assert!(built.success());
    let output = Command::new(Path::new(&program)).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn structs_have_the_layout_of_c() {
    let mut body = String::new();
    let mut ours = BTreeMap::new();
    for (name, size, fields) in layouts() {
        body += &format!("  printf(\"{name} %zu\\n\", sizeof({name}));\n");
        ours.insert(name.to_owned(), size as i64);
        for (field, offset, size) in fields {
            body += &format!("  printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));\n");
            body += &format!("  printf(\"{name}.{field}# %zu\\n\", sizeof((({name}*)0)->{field}));\n");
            ours.insert(format!("{name}.{field}"), offset as i64);
            ours.insert(format!("{name}.{field}#"), size as i64);
        }
    }
    assert_eq!(run_c("layout", &body), ours);
}

#[test]
fn every_struct_and_member_is_listed_here() {
    let listed: usize = layouts().iter().map(|(_, _, fields)| fields.len()).sum();
    let structs = BINDINGS.matches("\npub struct ").count() - BINDINGS.matches("_unused: [u8; 0]").count();
    let members = BINDINGS.lines().filter(|line| line.starts_with("    pub ") && line.contains(':')).count();
    assert_eq!((layouts().len(), listed), (structs, members));
}

#[test]
fn structs_have_their_first_versions_size_or_grew() {
    let sizes: Vec<usize> = layouts().iter().map(|(_, size, _)| *size).take(9).collect();
    let first = [
        BITEXACT_CONTEXT_OPTIONS_SIZE_V1,
        BITEXACT_CONTEXT_INFO_SIZE_V1,
        BITEXACT_SILU_MUL_PARAMS_SIZE_V1,
        BITEXACT_SILU_MUL_REFERENCE_SIZE_V1,
        BITEXACT_ROPE_PARAMS_SIZE_V1,
        BITEXACT_ROPE_REFERENCE_SIZE_V1,
        BITEXACT_GATE_REPORT_SIZE_V1,
        BITEXACT_CERTIFY_PARAMS_SIZE_V1,
        BITEXACT_CERTIFY_REPORT_SIZE_V1,
    ];
    let grown: Vec<usize> = sizes.iter().zip(first).map(|(size, first)| size - first as usize).collect();
    assert_eq!(grown, [0, 0, 8, 0, 0, 0, 0, 0, 0]); // clamp and limit_bits of silu_mul
}

#[test]
fn constants_have_the_values_of_c() {
    let constant = |line: &str| -> Option<(String, i64)> {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let (_, value) = rest.strip_suffix(';')?.split_once(" = ")?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let ours: BTreeMap<String, i64> = BINDINGS.lines().filter_map(constant).collect();
    let body: String =
        ours.keys().map(|name| format!("  printf(\"{name} %lld\\n\", (long long)({name}));\n")).collect();
    assert_eq!(run_c("constants", &body), ours);

    // No constant of the header is missing; function-like and value-less macros are not constants.
    let header = std::fs::read_to_string(Path::new(HEADER_DIR).join("bitexact.h")).unwrap();
    for line in header.lines() {
        let Some(rest) = line.strip_prefix("#define BITEXACT_") else { continue };
        let name = format!("BITEXACT_{}", rest.split([' ', '(']).next().unwrap());
        let text = rest.split("/*").next().unwrap();
        let not_a_number = name.ends_with("_INIT")
            || text.contains(',')
            || ["BITEXACT_H_", "BITEXACT_EXPORT", "BITEXACT_NODISCARD", "BITEXACT_CALL", "BITEXACT_NOEXCEPT"]
                .contains(&name.as_str());
        assert!(not_a_number || ours.contains_key(&name), "{name} is not bound");
    }
}
