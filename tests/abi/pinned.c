/* Every size, offset and constant of the ABI as a number: what binaries in the field rely on. A line is
 * added when the header grows; a line that has been released never changes. check_symbols.py fails if a
 * member or a constant is missing here. */
#include "bitexact.h"

#define JOINED(a, b) a##b
#define NAMED(prefix, line) JOINED(prefix, line)
/* A compile-time assertion that C99 knows: an array of size -1 does not compile. */
#define PINNED(condition) typedef char NAMED(pinned_at_line_, __LINE__)[(condition) ? 1 : -1]

#define STRUCT(type, size) PINNED(sizeof(type) == (size))
#define MEMBER(type, member, offset) PINNED(offsetof(type, member) == (offset))
#define CONSTANT(name, value) PINNED((name) == (value))

PINNED(sizeof(void*) == 8);
PINNED(sizeof(bitexact_version_fn) == 8);

/* The first version of each struct: its size never moves, even when the struct grows. */
CONSTANT(BITEXACT_CONTEXT_OPTIONS_SIZE_V1, 24);
CONSTANT(BITEXACT_CONTEXT_INFO_SIZE_V1, 56);
CONSTANT(BITEXACT_SILU_MUL_PARAMS_SIZE_V1, 120);
CONSTANT(BITEXACT_SILU_MUL_REFERENCE_SIZE_V1, 32);
CONSTANT(BITEXACT_ROPE_PARAMS_SIZE_V1, 336);
CONSTANT(BITEXACT_ROPE_REFERENCE_SIZE_V1, 72);
CONSTANT(BITEXACT_GATE_REPORT_SIZE_V1, 144);
CONSTANT(BITEXACT_CERTIFY_PARAMS_SIZE_V1, 32);
CONSTANT(BITEXACT_CERTIFY_REPORT_SIZE_V1, 120);

STRUCT(bitexact_context_options, 24);
MEMBER(bitexact_context_options, struct_size, 0);
MEMBER(bitexact_context_options, flags, 4);
MEMBER(bitexact_context_options, device, 8);
MEMBER(bitexact_context_options, gate_policy, 12);
MEMBER(bitexact_context_options, reference_mode, 16);
MEMBER(bitexact_context_options, reserved, 20);

STRUCT(bitexact_context_info, 56);
MEMBER(bitexact_context_info, struct_size, 0);
MEMBER(bitexact_context_info, flags, 4);
MEMBER(bitexact_context_info, device, 8);
MEMBER(bitexact_context_info, gate_policy, 12);
MEMBER(bitexact_context_info, reference_mode, 16);
MEMBER(bitexact_context_info, architecture, 20);
MEMBER(bitexact_context_info, image, 24);
MEMBER(bitexact_context_info, image_architecture, 28);
MEMBER(bitexact_context_info, driver_version, 32);
MEMBER(bitexact_context_info, runtime_version, 36);
MEMBER(bitexact_context_info, position_errors, 40);
MEMBER(bitexact_context_info, device_name, 48);

STRUCT(bitexact_silu_mul_params, 128);
MEMBER(bitexact_silu_mul_params, struct_size, 0);
MEMBER(bitexact_silu_mul_params, flags, 4);
MEMBER(bitexact_silu_mul_params, dtype, 8);
MEMBER(bitexact_silu_mul_params, compute_dtype, 12);
MEMBER(bitexact_silu_mul_params, silu, 16);
MEMBER(bitexact_silu_mul_params, reserved, 20);
MEMBER(bitexact_silu_mul_params, batches, 24);
MEMBER(bitexact_silu_mul_params, rows, 32);
MEMBER(bitexact_silu_mul_params, cols, 40);
MEMBER(bitexact_silu_mul_params, gate, 48);
MEMBER(bitexact_silu_mul_params, gate_batch_stride, 56);
MEMBER(bitexact_silu_mul_params, gate_row_stride, 64);
MEMBER(bitexact_silu_mul_params, up, 72);
MEMBER(bitexact_silu_mul_params, up_batch_stride, 80);
MEMBER(bitexact_silu_mul_params, up_row_stride, 88);
MEMBER(bitexact_silu_mul_params, out, 96);
MEMBER(bitexact_silu_mul_params, out_batch_stride, 104);
MEMBER(bitexact_silu_mul_params, out_row_stride, 112);
MEMBER(bitexact_silu_mul_params, clamp, 120);
MEMBER(bitexact_silu_mul_params, limit_bits, 124);

STRUCT(bitexact_silu_mul_reference, 32);
MEMBER(bitexact_silu_mul_reference, struct_size, 0);
MEMBER(bitexact_silu_mul_reference, flags, 4);
MEMBER(bitexact_silu_mul_reference, out, 8);
MEMBER(bitexact_silu_mul_reference, out_batch_stride, 16);
MEMBER(bitexact_silu_mul_reference, out_row_stride, 24);

STRUCT(bitexact_rope_params, 336);
MEMBER(bitexact_rope_params, struct_size, 0);
MEMBER(bitexact_rope_params, flags, 4);
MEMBER(bitexact_rope_params, dtype, 8);
MEMBER(bitexact_rope_params, table_dtype, 12);
MEMBER(bitexact_rope_params, compute_dtype, 16);
MEMBER(bitexact_rope_params, combine, 20);
MEMBER(bitexact_rope_params, pairing_in, 24);
MEMBER(bitexact_rope_params, pairing_out, 28);
MEMBER(bitexact_rope_params, batches, 32);
MEMBER(bitexact_rope_params, tokens, 40);
MEMBER(bitexact_rope_params, q_heads, 48);
MEMBER(bitexact_rope_params, k_heads, 56);
MEMBER(bitexact_rope_params, head_dim, 64);
MEMBER(bitexact_rope_params, rotary_dim, 72);
MEMBER(bitexact_rope_params, table_width, 80);
MEMBER(bitexact_rope_params, table_rows, 88);
MEMBER(bitexact_rope_params, q_in, 96);
MEMBER(bitexact_rope_params, q_in_batch_stride, 104);
MEMBER(bitexact_rope_params, q_in_token_stride, 112);
MEMBER(bitexact_rope_params, q_in_head_stride, 120);
MEMBER(bitexact_rope_params, q_out, 128);
MEMBER(bitexact_rope_params, q_out_batch_stride, 136);
MEMBER(bitexact_rope_params, q_out_token_stride, 144);
MEMBER(bitexact_rope_params, q_out_head_stride, 152);
MEMBER(bitexact_rope_params, k_in, 160);
MEMBER(bitexact_rope_params, k_in_batch_stride, 168);
MEMBER(bitexact_rope_params, k_in_token_stride, 176);
MEMBER(bitexact_rope_params, k_in_head_stride, 184);
MEMBER(bitexact_rope_params, k_out, 192);
MEMBER(bitexact_rope_params, k_out_batch_stride, 200);
MEMBER(bitexact_rope_params, k_out_token_stride, 208);
MEMBER(bitexact_rope_params, k_out_head_stride, 216);
MEMBER(bitexact_rope_params, cos, 224);
MEMBER(bitexact_rope_params, cos_batch_stride, 232);
MEMBER(bitexact_rope_params, cos_token_stride, 240);
MEMBER(bitexact_rope_params, cos_head_stride, 248);
MEMBER(bitexact_rope_params, cos_element_stride, 256);
MEMBER(bitexact_rope_params, sin, 264);
MEMBER(bitexact_rope_params, sin_batch_stride, 272);
MEMBER(bitexact_rope_params, sin_token_stride, 280);
MEMBER(bitexact_rope_params, sin_head_stride, 288);
MEMBER(bitexact_rope_params, sin_element_stride, 296);
MEMBER(bitexact_rope_params, positions, 304);
MEMBER(bitexact_rope_params, positions_batch_stride, 312);
MEMBER(bitexact_rope_params, positions_token_stride, 320);
MEMBER(bitexact_rope_params, positions_dtype, 328);
MEMBER(bitexact_rope_params, reserved, 332);

STRUCT(bitexact_rope_reference, 72);
MEMBER(bitexact_rope_reference, struct_size, 0);
MEMBER(bitexact_rope_reference, flags, 4);
MEMBER(bitexact_rope_reference, q, 8);
MEMBER(bitexact_rope_reference, q_batch_stride, 16);
MEMBER(bitexact_rope_reference, q_token_stride, 24);
MEMBER(bitexact_rope_reference, q_head_stride, 32);
MEMBER(bitexact_rope_reference, k, 40);
MEMBER(bitexact_rope_reference, k_batch_stride, 48);
MEMBER(bitexact_rope_reference, k_token_stride, 56);
MEMBER(bitexact_rope_reference, k_head_stride, 64);

STRUCT(bitexact_gate_report, 144);
MEMBER(bitexact_gate_report, struct_size, 0);
MEMBER(bitexact_gate_report, flags, 4);
MEMBER(bitexact_gate_report, operation, 8);
MEMBER(bitexact_gate_report, state, 12);
MEMBER(bitexact_gate_report, reason, 16);
MEMBER(bitexact_gate_report, basis, 20);
MEMBER(bitexact_gate_report, status, 24);
MEMBER(bitexact_gate_report, dtype, 28);
MEMBER(bitexact_gate_report, table_dtype, 32);
MEMBER(bitexact_gate_report, compute_dtype, 36);
MEMBER(bitexact_gate_report, numerics, 40);
MEMBER(bitexact_gate_report, mismatch_basis, 44);
MEMBER(bitexact_gate_report, mismatch_tensor, 48);
MEMBER(bitexact_gate_report, reserved, 52);
MEMBER(bitexact_gate_report, fused_calls, 56);
MEMBER(bitexact_gate_report, reference_calls, 64);
MEMBER(bitexact_gate_report, declined_calls, 72);
MEMBER(bitexact_gate_report, checks, 80);
MEMBER(bitexact_gate_report, compared, 88);
MEMBER(bitexact_gate_report, nan_payload_differences, 96);
MEMBER(bitexact_gate_report, mismatches, 104);
MEMBER(bitexact_gate_report, mismatch_index, 112);
MEMBER(bitexact_gate_report, mismatch_expected, 120);
MEMBER(bitexact_gate_report, mismatch_actual, 128);
MEMBER(bitexact_gate_report, kernel_name, 136);

STRUCT(bitexact_certify_params, 32);
MEMBER(bitexact_certify_params, struct_size, 0);
MEMBER(bitexact_certify_params, flags, 4);
MEMBER(bitexact_certify_params, kernel_index, 8);
MEMBER(bitexact_certify_params, first_part, 16);
MEMBER(bitexact_certify_params, part_count, 24);

STRUCT(bitexact_certify_report, 120);
MEMBER(bitexact_certify_report, struct_size, 0);
MEMBER(bitexact_certify_report, flags, 4);
MEMBER(bitexact_certify_report, kernel_index, 8);
MEMBER(bitexact_certify_report, parts_total, 16);
MEMBER(bitexact_certify_report, parts_done, 24);
MEMBER(bitexact_certify_report, exhaustive_compared, 32);
MEMBER(bitexact_certify_report, sampled_compared, 40);
MEMBER(bitexact_certify_report, mismatches, 48);
MEMBER(bitexact_certify_report, nan_payload_differences, 56);
MEMBER(bitexact_certify_report, digest, 64);
MEMBER(bitexact_certify_report, mismatch_inputs, 72);
MEMBER(bitexact_certify_report, mismatch_expected, 104);
MEMBER(bitexact_certify_report, mismatch_actual, 112);

STRUCT(bitexact_api, 240);
MEMBER(bitexact_api, struct_size, 0);
MEMBER(bitexact_api, api_version, 4);
MEMBER(bitexact_api, version, 8);
MEMBER(bitexact_api, build_info, 16);
MEMBER(bitexact_api, status_string, 24);
MEMBER(bitexact_api, last_error, 32);
MEMBER(bitexact_api, last_cuda_error, 40);
MEMBER(bitexact_api, context_options_init, 48);
MEMBER(bitexact_api, context_info_init, 56);
MEMBER(bitexact_api, silu_mul_params_init, 64);
MEMBER(bitexact_api, silu_mul_reference_init, 72);
MEMBER(bitexact_api, rope_params_init, 80);
MEMBER(bitexact_api, rope_reference_init, 88);
MEMBER(bitexact_api, gate_report_init, 96);
MEMBER(bitexact_api, certify_params_init, 104);
MEMBER(bitexact_api, certify_report_init, 112);
MEMBER(bitexact_api, context_create, 120);
MEMBER(bitexact_api, context_destroy, 128);
MEMBER(bitexact_api, context_set_log, 136);
MEMBER(bitexact_api, context_get_info, 144);
MEMBER(bitexact_api, fused_silu_mul, 152);
MEMBER(bitexact_api, fused_silu_mul_can_use, 160);
MEMBER(bitexact_api, fused_silu_mul_verify, 168);
MEMBER(bitexact_api, fused_rope, 176);
MEMBER(bitexact_api, fused_rope_can_use, 184);
MEMBER(bitexact_api, fused_rope_verify, 192);
MEMBER(bitexact_api, gate_warm_up, 200);
MEMBER(bitexact_api, gate_count, 208);
MEMBER(bitexact_api, gate_get, 216);
MEMBER(bitexact_api, gate_reset, 224);
MEMBER(bitexact_api, certify, 232);

CONSTANT(BITEXACT_STATUS_OK, 0);
CONSTANT(BITEXACT_STATUS_NULL_POINTER, 1);
CONSTANT(BITEXACT_STATUS_STRUCT_SIZE, 2);
CONSTANT(BITEXACT_STATUS_UNKNOWN_FIELD, 3);
CONSTANT(BITEXACT_STATUS_INVALID_VALUE, 4);
CONSTANT(BITEXACT_STATUS_INVALID_SHAPE, 5);
CONSTANT(BITEXACT_STATUS_INVALID_STRIDE, 6);
CONSTANT(BITEXACT_STATUS_OVERLAP, 7);
CONSTANT(BITEXACT_STATUS_TOO_LARGE, 8);
CONSTANT(BITEXACT_STATUS_UNALIGNED, 9);
CONSTANT(BITEXACT_STATUS_INVALID_STREAM, 10);
CONSTANT(BITEXACT_STATUS_INVALID_DEVICE, 11);
CONSTANT(BITEXACT_STATUS_INDEX, 12);
CONSTANT(BITEXACT_STATUS_API_VERSION, 13);
CONSTANT(BITEXACT_STATUS_ENVIRONMENT, 14);
CONSTANT(BITEXACT_STATUS_UNSUPPORTED, 15);
CONSTANT(BITEXACT_STATUS_FORKED, 16);
CONSTANT(BITEXACT_STATUS_WRONG_MODE, 17);
CONSTANT(BITEXACT_STATUS_NO_DRIVER, 100);
CONSTANT(BITEXACT_STATUS_NO_DEVICE, 101);
CONSTANT(BITEXACT_STATUS_DRIVER_TOO_OLD, 102);
CONSTANT(BITEXACT_STATUS_NO_KERNEL_IMAGE, 103);
CONSTANT(BITEXACT_STATUS_OUT_OF_MEMORY, 104);
CONSTANT(BITEXACT_STATUS_CUDA_ERROR, 105);
CONSTANT(BITEXACT_STATUS_NO_CUDA_BACKEND, 106);
CONSTANT(BITEXACT_STATUS_HOST_LIBM, 107);
CONSTANT(BITEXACT_STATUS_INTERNAL, 108);
CONSTANT(BITEXACT_STATUS_UNVERIFIED, 200);
CONSTANT(BITEXACT_STATUS_DECLINED, 201);
CONSTANT(BITEXACT_STATUS_CAPTURING, 202);

CONSTANT(BITEXACT_DTYPE_DEFAULT, 0);
CONSTANT(BITEXACT_DTYPE_FLOAT32, 1);
CONSTANT(BITEXACT_DTYPE_FLOAT16, 2);
CONSTANT(BITEXACT_DTYPE_BFLOAT16, 3);
CONSTANT(BITEXACT_DTYPE_FLOAT64, 4);
CONSTANT(BITEXACT_DTYPE_INT32, 5);
CONSTANT(BITEXACT_DTYPE_INT64, 6);

CONSTANT(BITEXACT_DEVICE_HOST, -1);

CONSTANT(BITEXACT_POLICY_VERIFY, 0);
CONSTANT(BITEXACT_POLICY_REFERENCE, 1);
CONSTANT(BITEXACT_POLICY_TRUST, 2);
CONSTANT(BITEXACT_POLICY_AUDIT, 3);
CONSTANT(BITEXACT_POLICY_STRICT, 4);

CONSTANT(BITEXACT_REFERENCE_BUILTIN, 0);
CONSTANT(BITEXACT_REFERENCE_CALLER, 1);

CONSTANT(BITEXACT_OPERATION_FUSED_ROPE, 1);
CONSTANT(BITEXACT_OPERATION_FUSED_SILU_MUL, 2);

CONSTANT(BITEXACT_IMAGE_HOST, 0);
CONSTANT(BITEXACT_IMAGE_SASS, 1);
CONSTANT(BITEXACT_IMAGE_PTX, 2);

CONSTANT(BITEXACT_STATE_UNDECIDED, 0);
CONSTANT(BITEXACT_STATE_ACCEPTED, 1);
CONSTANT(BITEXACT_STATE_DECLINED, 2);

CONSTANT(BITEXACT_REASON_NONE, 0);
CONSTANT(BITEXACT_REASON_EQUAL, 1);
CONSTANT(BITEXACT_REASON_MISMATCH, 2);
CONSTANT(BITEXACT_REASON_LAUNCH_ERROR, 3);
CONSTANT(BITEXACT_REASON_NO_IMAGE, 4);
CONSTANT(BITEXACT_REASON_POLICY, 5);
CONSTANT(BITEXACT_REASON_REFERENCE, 6);

CONSTANT(BITEXACT_BASIS_PROBE, 1);
CONSTANT(BITEXACT_BASIS_LIVE, 2);
CONSTANT(BITEXACT_BASIS_CERTIFICATE, 4);

CONSTANT(BITEXACT_LOG_WARNING, 2);
CONSTANT(BITEXACT_LOG_INFO, 3);

CONSTANT(BITEXACT_SILU_ATEN, 0);
CONSTANT(BITEXACT_SILU_SIGMOID, 1);
CONSTANT(BITEXACT_SILU_CANDLE, 2);
CONSTANT(BITEXACT_SILU_GLU, 3);
CONSTANT(BITEXACT_CLAMP_NONE, 0);
CONSTANT(BITEXACT_CLAMP_BEFORE, 1);
CONSTANT(BITEXACT_CLAMP_AFTER, 2);

CONSTANT(BITEXACT_ROPE_INVERSE, 1);
CONSTANT(BITEXACT_ROPE_SUM_FROM_ZERO, 2);

CONSTANT(BITEXACT_COMBINE_SEPARATE, 0);
CONSTANT(BITEXACT_COMBINE_COMPLEX, 1);
CONSTANT(BITEXACT_COMBINE_COMPLEX_ALT, 2);
CONSTANT(BITEXACT_COMBINE_ADDCMUL_COS, 3);
CONSTANT(BITEXACT_COMBINE_ADDCMUL_X1, 4);

CONSTANT(BITEXACT_PAIRING_HALF, 0);
CONSTANT(BITEXACT_PAIRING_INTERLEAVED, 1);
