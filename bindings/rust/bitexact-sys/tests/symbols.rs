//! The library, the function bindings and the function table name the same functions.
#![cfg(feature = "link")]
use bitexact_sys::*;
use std::collections::BTreeSet;
use std::process::Command;

const LIBRARY: &str = env!("BITEXACT_SYS_LIBRARY");
const FUNCTIONS: &str = include_str!("../src/functions.rs");

fn bound() -> BTreeSet<String> {
    let name = |line: &str| Some(line.trim().strip_prefix("pub fn ")?.split('(').next()?.to_owned());
    FUNCTIONS.lines().filter_map(name).collect()
}

#[test]
fn every_exported_function_is_bound_and_the_other_way_round() {
    let output = Command::new("nm").args(["-D", "--defined-only", LIBRARY]).output().expect("nm is needed");
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|name| name.split('@').next().unwrap().to_owned())
        .filter(|name| !name.starts_with("BITEXACT_"))
        .collect();
    assert_eq!(exported, bound());
}

fn table() -> &'static bitexact_api {
    let mut table = std::ptr::null();
    // SAFETY: `table` is a valid place for the answer; the table lives until the process ends.
    unsafe {
        assert_eq!(bitexact_get_api(BITEXACT_API_VERSION as u32, &mut table), BITEXACT_STATUS_OK);
        &*table
    }
}

macro_rules! compare_with_table {
    ($($member:ident: $function:ident as $pointer:ident),* $(,)?) => {
        /// (function, address through the linker, address in the table)
        fn addresses() -> Vec<(&'static str, usize, usize)> {
            vec![$({
                let linked: $pointer = Some($function);
                let in_table: $pointer = table().$member;
                (stringify!($function), linked.map_or(0, |f| f as usize), in_table.map_or(0, |f| f as usize))
            }),*]
        }
    };
}

compare_with_table! {
    version: bitexact_version as bitexact_version_fn,
    build_info: bitexact_build_info as bitexact_build_info_fn,
    status_string: bitexact_status_string as bitexact_status_string_fn,
    last_error: bitexact_last_error as bitexact_last_error_fn,
    last_cuda_error: bitexact_last_cuda_error as bitexact_last_cuda_error_fn,
    context_options_init: bitexact_context_options_init as bitexact_context_options_init_fn,
    context_info_init: bitexact_context_info_init as bitexact_context_info_init_fn,
    silu_mul_params_init: bitexact_silu_mul_params_init as bitexact_silu_mul_params_init_fn,
    silu_mul_reference_init: bitexact_silu_mul_reference_init as bitexact_silu_mul_reference_init_fn,
    rope_params_init: bitexact_rope_params_init as bitexact_rope_params_init_fn,
    rope_reference_init: bitexact_rope_reference_init as bitexact_rope_reference_init_fn,
    gate_report_init: bitexact_gate_report_init as bitexact_gate_report_init_fn,
    certify_params_init: bitexact_certify_params_init as bitexact_certify_params_init_fn,
    certify_report_init: bitexact_certify_report_init as bitexact_certify_report_init_fn,
    context_create: bitexact_context_create as bitexact_context_create_fn,
    context_destroy: bitexact_context_destroy as bitexact_context_destroy_fn,
    context_set_log: bitexact_context_set_log as bitexact_context_set_log_fn,
    context_get_info: bitexact_context_get_info as bitexact_context_get_info_fn,
    fused_silu_mul: bitexact_fused_silu_mul as bitexact_fused_silu_mul_fn,
    fused_rope: bitexact_fused_rope as bitexact_fused_rope_fn,
    fused_silu_mul_can_use: bitexact_fused_silu_mul_can_use as bitexact_fused_silu_mul_can_use_fn,
    fused_rope_can_use: bitexact_fused_rope_can_use as bitexact_fused_rope_can_use_fn,
    fused_silu_mul_verify: bitexact_fused_silu_mul_verify as bitexact_fused_silu_mul_verify_fn,
    fused_rope_verify: bitexact_fused_rope_verify as bitexact_fused_rope_verify_fn,
    gate_warm_up: bitexact_gate_warm_up as bitexact_gate_warm_up_fn,
    gate_count: bitexact_gate_count as bitexact_gate_count_fn,
    gate_get: bitexact_gate_get as bitexact_gate_get_fn,
    gate_reset: bitexact_gate_reset as bitexact_gate_reset_fn,
    certify: bitexact_certify as bitexact_certify_fn,
}

#[test]
fn the_table_holds_the_same_functions() {
    for (name, linked, in_table) in addresses() {
        assert_eq!(linked, in_table, "{name}");
    }
    let mut names: BTreeSet<String> = addresses().into_iter().map(|(name, _, _)| name.to_owned()).collect();
    names.insert("bitexact_get_api".to_owned());
    assert_eq!(names, bound());
}

#[test]
fn the_table_is_as_long_as_the_header_says() {
    assert_eq!(table().struct_size as usize, std::mem::size_of::<bitexact_api>());
    assert_eq!(table().api_version, BITEXACT_API_VERSION as u32);
}

#[test]
fn the_version_is_the_headers_version() {
    // SAFETY: a function without arguments.
    assert_eq!(unsafe { bitexact_version() }, BITEXACT_VERSION as u32);
}
