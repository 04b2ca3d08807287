/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file bitexact.h
 * @brief Fused rotary embedding and gated SiLU whose output bits equal the eager operator chain.
 *
 * Promise. For each operation, dtype and numerics (`compute_dtype`, `combine`, `silu`, `clamp`) the output
 * equals the named eager chain as integers: every element, every input bit pattern, every shape, stride and
 * alignment. NaN results are written as 0x7fff (16-bit types) or 0x7fffffff (float32). The gate proves it at
 * first use and falls back for good if one bit differs.
 *
 * Rules that hold for every declaration below:
 * - Status: functions return 0 or a BITEXACT_STATUS value. On any non-zero status outputs are untouched and
 *   nothing was enqueued, except after BITEXACT_STATUS_CUDA_ERROR, where CUDA decides.
 * - Structs: set `struct_size` with the initialiser; zero in a field means the documented default. A struct
 *   shorter than the library's reads as zero beyond its end; one that is longer must be zero there. Structs
 *   are read before the function returns; none is kept.
 * - Units: sizes count elements, strides count elements (not bytes) and may be negative or zero.
 * - Memory: tensor pointers are device memory of the context's device (host memory for a host context), read
 *   and written in stream order; the caller keeps them alive until the stream has passed the call. No
 *   alignment beyond the dtype's own is demanded.
 * - Operations only enqueue: no allocation, no synchronisation, no host callback, safe under stream capture.
 *   The one exception is the first-use check, which never runs during capture.
 * - The calling thread's current device, current CUDA context and CUDA error state are left as found.
 * - Threads: [any] any time from any thread, also on one shared object; [object] one call at a time on one
 *   object; [alone] while no other call uses the object. "Thread" means an OS thread.
 * - Strings returned are UTF-8 and owned by the library. Nothing is printed, thrown or aborted.
 */
#ifndef BITEXACT_H_
#define BITEXACT_H_

#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------ attributes -- */
#ifndef BITEXACT_EXPORT
#define BITEXACT_EXPORT /**< Marks exported functions. */
#endif
/** Warns when a status is ignored. Define it away before including if that is not wanted. */
#if !defined(BITEXACT_NODISCARD) && defined(__GNUC__)
#define BITEXACT_NODISCARD __attribute__((warn_unused_result))
#elif !defined(BITEXACT_NODISCARD)
#define BITEXACT_NODISCARD
#endif
#define BITEXACT_CALL BITEXACT_NODISCARD BITEXACT_EXPORT /**< Exported, and returns a status. */
/** No function throws. */
#ifdef __cplusplus
#define BITEXACT_NOEXCEPT noexcept
extern "C" {
#else
#define BITEXACT_NOEXCEPT
#endif

/* --------------------------------------------------------------------------- version -- */
#define BITEXACT_VERSION_MAJOR 0 /* until 1.0 the ABI may still change; after it nothing breaks */
#define BITEXACT_VERSION_MINOR 9
#define BITEXACT_VERSION_PATCH 0
/** Version as one number: major * 10000 + minor * 100 + patch. */
#define BITEXACT_VERSION \
  (BITEXACT_VERSION_MAJOR * 10000 + BITEXACT_VERSION_MINOR * 100 + BITEXACT_VERSION_PATCH)
#define BITEXACT_API_VERSION 1 /**< Of the function table that this header describes. */

/* ------------------------------------------- status; 1-99: the caller's mistake -- */
#define BITEXACT_STATUS_OK 0
#define BITEXACT_STATUS_NULL_POINTER 1    /**< A required pointer is null. */
#define BITEXACT_STATUS_STRUCT_SIZE 2     /**< struct_size is too small to be a version of the struct. */
#define BITEXACT_STATUS_UNKNOWN_FIELD 3   /**< A flag, reserved member or longer tail is not zero. */
#define BITEXACT_STATUS_INVALID_VALUE 4   /**< A constant is none of the listed ones. */
#define BITEXACT_STATUS_INVALID_SHAPE 5   /**< A size is negative or does not fit the others. */
#define BITEXACT_STATUS_INVALID_STRIDE 6  /**< An output visits one element twice. */
#define BITEXACT_STATUS_OVERLAP 7         /**< An output overlaps another tensor, not exactly in place. */
#define BITEXACT_STATUS_TOO_LARGE 8       /**< A byte offset does not fit 63 bits. */
#define BITEXACT_STATUS_UNALIGNED 9       /**< A pointer is not aligned to its dtype. */
#define BITEXACT_STATUS_INVALID_STREAM 10 /**< A host context takes a null stream only. */
#define BITEXACT_STATUS_INVALID_DEVICE 11 /**< No such device ordinal. */
#define BITEXACT_STATUS_INDEX 12          /**< A kernel index is out of range. */
#define BITEXACT_STATUS_API_VERSION 13    /**< The function table asked for is newer than the library. */
#define BITEXACT_STATUS_ENVIRONMENT 14    /**< BITEXACT_GATE holds an unknown policy. */
#define BITEXACT_STATUS_UNSUPPORTED 15    /**< Well-formed, but this build has no such kernel. */
#define BITEXACT_STATUS_FORKED 16         /**< The context was made before fork(); make one in the child. */
#define BITEXACT_STATUS_WRONG_MODE 17     /**< The call does not fit the context's reference mode. */
/* 100-199: the environment. */
#define BITEXACT_STATUS_NO_DRIVER 100       /**< No CUDA driver on this machine. */
#define BITEXACT_STATUS_NO_DEVICE 101       /**< A driver, but no CUDA device. */
#define BITEXACT_STATUS_DRIVER_TOO_OLD 102  /**< The driver is older than the library's CUDA runtime. */
#define BITEXACT_STATUS_NO_KERNEL_IMAGE 103 /**< No machine code or PTX here for this device. */
#define BITEXACT_STATUS_OUT_OF_MEMORY 104   /**< Host or device memory. */
#define BITEXACT_STATUS_CUDA_ERROR 105      /**< Any other CUDA error: bitexact_last_cuda_error(). */
#define BITEXACT_STATUS_NO_CUDA_BACKEND 106 /**< The library was built without CUDA. */
#define BITEXACT_STATUS_HOST_LIBM 107       /**< This libm's expf is not the one the contract names. */
#define BITEXACT_STATUS_INTERNAL 108 /**< A defect of the library, or a device that computes wrongly. */
/* 200-299: the gate's answers. Normal; nothing was enqueued: run your own chain. */
#define BITEXACT_STATUS_UNVERIFIED 200 /**< Caller mode, undecided: run eager, then ..._verify. */
#define BITEXACT_STATUS_DECLINED 201   /**< Not proven equal, for good: run eager. */
#define BITEXACT_STATUS_CAPTURING 202  /**< Undecided, and the stream is capturing: run eager. */
/* 1000 and up: experimental, may change. */

/* ----------------------------------------------------------------------------- types -- */
/** CUDA's own stream type; cudaStream_t and CUstream pass without a cast. The special handles 0 (the
 *  default stream), 1 (legacy) and 2 (per thread) pass through untouched. */
typedef struct CUstream_st* bitexact_stream;

/** Owns verdicts for one device. Opaque; from bitexact_context_create(). Since 0.9. */
typedef struct bitexact_context bitexact_context;

#define BITEXACT_DTYPE_DEFAULT 0 /**< What the field's own comment says. */
#define BITEXACT_DTYPE_FLOAT32 1
#define BITEXACT_DTYPE_FLOAT16 2
#define BITEXACT_DTYPE_BFLOAT16 3
#define BITEXACT_DTYPE_FLOAT64 4
#define BITEXACT_DTYPE_INT32 5
#define BITEXACT_DTYPE_INT64 6

#define BITEXACT_DEVICE_HOST (-1) /**< Device ordinal of the host backend. */

#define BITEXACT_POLICY_VERIFY 0    /**< Check at first use, latch the verdict. */
#define BITEXACT_POLICY_REFERENCE 1 /**< Never fuse: the off switch. */
#define BITEXACT_POLICY_TRUST 2     /**< Fuse without a check, and no fast kernel. */
#define BITEXACT_POLICY_AUDIT 3     /**< Check every call (slow; for debugging). */
#define BITEXACT_POLICY_STRICT 4    /**< As VERIFY, but a decline is returned as DECLINED (for CI). */

#define BITEXACT_REFERENCE_BUILTIN 0 /**< The library's own reference, held against digests, is the truth. */
#define BITEXACT_REFERENCE_CALLER 1  /**< The framework's own eager result is the truth. */

#define BITEXACT_OPERATION_FUSED_ROPE 1
#define BITEXACT_OPERATION_FUSED_SILU_MUL 2

#define BITEXACT_IMAGE_HOST 0 /**< Host backend. */
#define BITEXACT_IMAGE_SASS 1 /**< Machine code shipped for this architecture. */
#define BITEXACT_IMAGE_PTX 2  /**< PTX that the driver finished on this machine. */

#define BITEXACT_STATE_UNDECIDED 0
#define BITEXACT_STATE_ACCEPTED 1
#define BITEXACT_STATE_DECLINED 2

#define BITEXACT_REASON_NONE 0
#define BITEXACT_REASON_EQUAL 1        /**< All compared bits were equal. */
#define BITEXACT_REASON_MISMATCH 2     /**< At least one bit differed. */
#define BITEXACT_REASON_LAUNCH_ERROR 3 /**< The fused kernel could not be launched or failed. */
#define BITEXACT_REASON_NO_IMAGE 4     /**< No machine code or PTX for this device. */
#define BITEXACT_REASON_POLICY 5       /**< The policy decided (REFERENCE or TRUST). */
#define BITEXACT_REASON_REFERENCE 6    /**< The reference or the comparison is wrong: nothing is proven. */

/** Bits of `basis`: what a verdict rests on. */
#define BITEXACT_BASIS_PROBE 1       /**< Probe inputs against the reference, and that against a digest. */
#define BITEXACT_BASIS_LIVE 2        /**< The caller's tensors. */
#define BITEXACT_BASIS_CERTIFICATE 4 /**< A completed bitexact_certify(). */

#define BITEXACT_LOG_WARNING 2 /**< A decline. */
#define BITEXACT_LOG_INFO 3    /**< An acceptance. */

/** Receives one line per verdict. @param level BITEXACT_LOG value. @param text no newline; valid during
 *  the call only. @param user as given to bitexact_context_set_log(). May be called from any thread that
 *  calls an operation; must not throw and must not call back into the context. Since 0.9. */
typedef void (*bitexact_log_fn)(int32_t level, const char* text, void* user);

/** Options of a context. All zero: CUDA device 0, VERIFY, BUILTIN. Since 0.9. */
typedef struct bitexact_context_options {
  uint32_t struct_size;   /**< sizeof(bitexact_context_options). */
  uint32_t flags;         /**< None defined: 0. */
  int32_t device;         /**< CUDA ordinal (after CUDA_VISIBLE_DEVICES) or BITEXACT_DEVICE_HOST. */
  int32_t gate_policy;    /**< BITEXACT_POLICY value. The environment variable BITEXACT_GATE, read at
                               creation (verify, reference, trust, audit, strict), overrides it. */
  int32_t reference_mode; /**< BITEXACT_REFERENCE value. */
  int32_t reserved;       /**< 0. */
} bitexact_context_options;

/** Facts about a context. Written by the library up to the caller's struct_size. Since 0.9. */
typedef struct bitexact_context_info {
  uint32_t struct_size;       /**< In: sizeof(bitexact_context_info). */
  uint32_t flags;             /**< 0. */
  int32_t device;             /**< As in the options. */
  int32_t gate_policy;        /**< In force, BITEXACT_GATE applied. */
  int32_t reference_mode;     /**< BITEXACT_REFERENCE value. */
  int32_t architecture;       /**< Compute capability, major * 10 + minor; 0 for the host. */
  int32_t image;              /**< BITEXACT_IMAGE value. */
  int32_t image_architecture; /**< Architecture that the running code was compiled for; 0 for the host. */
  int32_t driver_version;     /**< As cudaDriverGetVersion gives it; 0 for the host. */
  int32_t runtime_version;    /**< Of the CUDA runtime inside the library; 0 in a host-only build. */
  int64_t position_errors;    /**< Tokens whose position lay outside [0, table_rows), in finished calls. */
  const char* device_name;    /**< Lives as long as the context. */
} bitexact_context_info;

/**
 * Arguments of fused_silu_mul: out[b, r, c] = silu(gate[b, r, c]) * up[b, r, c]. Since 0.9.
 *
 * Columns are contiguous; batch and row strides are free, so separate tensors, both orders of a packed
 * (rows, 2 * cols) tensor, slices and padded outputs need no copy. In place (out == gate or out == up
 * with equal strides) is allowed; any other overlap of out is refused. A zero size is success without
 * a launch; pointers may then be null.
 *
 * With x the dtype, rX(v) = v rounded to x (to nearest even, subnormals kept), r32 likewise:
 * - ATEN (0):  s = rX(r32(g / r32(1 + expf(-g))))              torch.nn.functional.silu on CUDA
 * - SIGMOID:   s = rX(g * rX(r32(1 / r32(1 + expf(-g)))))      x * torch.sigmoid(x)
 * - CANDLE:    e = rX(expf(-g)), d = rX(1 + e), s = rX(g / d)  candle's eager silu: CPU, and float16 on CUDA
 * - GLU:       s = rX(r32(1 / r32(1 + expf(-g))))              torch.sigmoid(gate) * up
 * - compute_dtype 0:       out = rX(s * u)       two roundings, the eager chain
 * - compute_dtype FLOAT32: out = rX(r32(s32 * u)), s32 = s before its last rounding to x (ATEN:
 *                          silu(gate.float()) * up.float(), one cast; GLU: torch.nn.functional.glu)
 * - clamp (ATEN alone): max(min(u, L), -L) stands for u; BEFORE, min(g, L) for g; AFTER, min(s, L) for s. L is
 *   the limit rounded to x; unrounded with compute_dtype FLOAT32, which AFTER does not take. A NaN stays one.
 */
typedef struct bitexact_silu_mul_params {
  uint32_t struct_size;        /**< sizeof(bitexact_silu_mul_params). */
  uint32_t flags;              /**< None defined: 0. */
  int32_t dtype;               /**< Of gate, up and out: FLOAT32, FLOAT16 or BFLOAT16. */
  int32_t compute_dtype;       /**< 0 or FLOAT32. */
  int32_t silu;                /**< BITEXACT_SILU value. */
  int32_t reserved;            /**< 0. */
  int64_t batches, rows, cols; /**< >= 0. */
  const void* gate; /**< In. Element (b, r, c) at b * gate_batch_stride + r * gate_row_stride + c. */
  int64_t gate_batch_stride, gate_row_stride;
  const void* up; /**< In. As gate. */
  int64_t up_batch_stride, up_row_stride;
  void* out; /**< Out. As gate; no element may be visited twice. */
  int64_t out_batch_stride, out_row_stride;
  int32_t clamp;       /**< BITEXACT_CLAMP value. */
  uint32_t limit_bits; /**< With a clamp: the limit as the bits of a float32, finite, > 0 in x. Without: 0. */
} bitexact_silu_mul_params;

#define BITEXACT_SILU_ATEN 0
#define BITEXACT_SILU_SIGMOID 1
#define BITEXACT_SILU_CANDLE 2
#define BITEXACT_SILU_GLU 3
#define BITEXACT_CLAMP_NONE 0
#define BITEXACT_CLAMP_BEFORE 1
#define BITEXACT_CLAMP_AFTER 2

/** The framework's own result for bitexact_fused_silu_mul_verify(). Since 0.9. */
typedef struct bitexact_silu_mul_reference {
  uint32_t struct_size; /**< sizeof(bitexact_silu_mul_reference). */
  uint32_t flags;       /**< None defined: 0. */
  const void* out;      /**< In. Shape and dtype of params->out. */
  int64_t out_batch_stride, out_row_stride;
} bitexact_silu_mul_reference;

/**
 * Arguments of fused_rope: rotates q, and k if k_heads > 0, in one launch. Since 0.9.
 *
 * Shape of q: (batches, tokens, q_heads, head_dim), of k with k_heads; head_dim is contiguous, the other
 * strides are free. Each tensor on its own may be in place (out == in with equal strides, pairings
 * equal); any other overlap of an output is refused. The first rotary_dim elements of a head rotate; the
 * rest is copied bit for bit (left alone in place). rotary_dim 0 copies.
 *
 * Pairs (x1, x2) for j in [0, rotary_dim / 2): HALF is elements j and j + rotary_dim / 2, INTERLEAVED is
 * 2j and 2j + 1, named for input and output separately. (c1, s1) and (c2, s2) are the table entries at
 * those two positions of the pair as pairing_in names them (table_width == rotary_dim; they need not be
 * equal), or entry j for both (table_width == rotary_dim / 2).
 *
 * With x the dtype, C the compute dtype, rC and rX rounding to them (to nearest even, subnormals kept):
 * - SEPARATE (0):  o1 = rX(rC(rC(x1*c1) - rC(x2*s1)))   o2 = rX(rC(rC(x2*c2) + rC(x1*s2)))
 * - COMPLEX:       o1 = rX(fmaC(x1, c1, -rC(x2*s1)))    o2 = rX(fmaC(x1, s2, rC(x2*c2)))
 * - COMPLEX_ALT:   o1 = rX(fmaC(x1, c1, -rC(x2*s1)))    o2 = rX(fmaC(x2, c2, rC(x1*s2)))
 * - ADDCMUL_COS:   o1 = rX(fmaC(-x2, s1, rC(x1*c1)))    o2 = rX(fmaC(x1, s2, rC(x2*c2)))
 * - ADDCMUL_X1:    o1 = rX(fmaC(-x2, s1, rC(x1*c1)))    o2 = rX(fmaC(x2, c2, rC(x1*s2)))
 * fmaC rounds once to C. A 16-bit C sums in float32 first: rC(a - b) is rC(r32(a - b)), fmaC is
 * rC(r32(...)). With C = float64, rX(v) is rX(r32(v)), as PyTorch's cast does.
 */
typedef struct bitexact_rope_params {
  uint32_t struct_size;  /**< sizeof(bitexact_rope_params). */
  uint32_t flags;        /**< BITEXACT_ROPE_ flags. */
  int32_t dtype;         /**< Of q and k: FLOAT32, FLOAT16 or BFLOAT16. */
  int32_t table_dtype;   /**< Of cos and sin: 0 = dtype; or dtype, FLOAT32, FLOAT64. */
  int32_t compute_dtype; /**< 0 = PyTorch's promotion of dtype and table_dtype, or FLOAT32 or FLOAT64 where
                              that is no narrower. */
  int32_t combine;       /**< BITEXACT_COMBINE value. */
  int32_t pairing_in;    /**< BITEXACT_PAIRING value. */
  int32_t pairing_out;   /**< BITEXACT_PAIRING value. */
  int64_t batches, tokens, q_heads; /**< >= 0. */
  int64_t k_heads;     /**< >= 0, any ratio to q_heads. 0: k is absent, k_in and k_out not looked at. */
  int64_t head_dim;    /**< >= 0. */
  int64_t rotary_dim;  /**< Even, in [0, head_dim]. */
  int64_t table_width; /**< rotary_dim, or rotary_dim / 2. */
  int64_t table_rows;  /**< Rows that cos and sin both have on the token axis. Without positions >= tokens. */
  const void* q_in;    /**< In. Element (b, t, h, d) at b * batch + t * token + h * head stride + d. */
  int64_t q_in_batch_stride, q_in_token_stride, q_in_head_stride;
  void* q_out; /**< Out. As q_in; no element may be visited twice. */
  int64_t q_out_batch_stride, q_out_token_stride, q_out_head_stride;
  const void* k_in; /**< In. As q_in. */
  int64_t k_in_batch_stride, k_in_token_stride, k_in_head_stride;
  void* k_out; /**< Out. As q_out. */
  int64_t k_out_batch_stride, k_out_token_stride, k_out_head_stride;
  const void* cos; /**< In. Entry e of row r for (b, h) at b * batch + r * token + h * head + e * element
                        stride. Stride 0 broadcasts. h is the head's own index in q or in k. */
  int64_t cos_batch_stride, cos_token_stride, cos_head_stride;
  int64_t cos_element_stride; /**< 1; 2 reads the real parts of a complex table, 4 a 2x2 matrix table. */
  const void* sin;            /**< In. As cos. */
  int64_t sin_batch_stride, sin_token_stride, sin_head_stride, sin_element_stride;
  const void* positions; /**< In, may be null: table row r = t. Else r = positions[b, t]. A position outside
                              [0, table_rows) reads no table: the rotated part of that token is written as
                              NaN, its tail is copied, and position_errors of the context counts it. */
  int64_t positions_batch_stride, positions_token_stride;
  int32_t positions_dtype; /**< INT32 or INT64; 0 if positions is null. */
  int32_t reserved;        /**< 0. */
} bitexact_rope_params;

#define BITEXACT_ROPE_INVERSE 1u       /**< Rotate backwards: sin negated, exact. */
#define BITEXACT_ROPE_SUM_FROM_ZERO 2u /**< A zero result is +0: chains whose sum starts at +0. */

#define BITEXACT_COMBINE_SEPARATE 0
#define BITEXACT_COMBINE_COMPLEX 1
#define BITEXACT_COMBINE_COMPLEX_ALT 2
#define BITEXACT_COMBINE_ADDCMUL_COS 3
#define BITEXACT_COMBINE_ADDCMUL_X1 4

#define BITEXACT_PAIRING_HALF 0        /**< NeoX: j with j + rotary_dim / 2. */
#define BITEXACT_PAIRING_INTERLEAVED 1 /**< GPT-J: 2j with 2j + 1. */

/** The framework's own result for bitexact_fused_rope_verify(). Since 0.9. */
typedef struct bitexact_rope_reference {
  uint32_t struct_size; /**< sizeof(bitexact_rope_reference). */
  uint32_t flags;       /**< None defined: 0. */
  const void* q;        /**< In. Shape and dtype of params->q_out. */
  int64_t q_batch_stride, q_token_stride, q_head_stride;
  const void* k; /**< In. Shape and dtype of params->k_out; not looked at if k_heads is 0. */
  int64_t k_batch_stride, k_token_stride, k_head_stride;
} bitexact_rope_reference;

/** The whole story of one compiled kernel in one context. Since 0.9. */
typedef struct bitexact_gate_report {
  uint32_t struct_size;            /**< In: sizeof(bitexact_gate_report). */
  uint32_t flags;                  /**< 0. */
  int32_t operation;               /**< BITEXACT_OPERATION value. */
  int32_t state;                   /**< BITEXACT_STATE value. */
  int32_t reason;                  /**< BITEXACT_REASON value. */
  int32_t basis;                   /**< BITEXACT_BASIS bits. */
  int32_t status;                  /**< For LAUNCH_ERROR and NO_IMAGE the status met, else 0. */
  int32_t dtype;                   /**< BITEXACT_DTYPE value. */
  int32_t table_dtype;             /**< fused_rope only, else 0. */
  int32_t compute_dtype;           /**< Resolved, never 0 for fused_rope. */
  int32_t numerics;                /**< BITEXACT_COMBINE value, or BITEXACT_SILU value. */
  int32_t mismatch_basis;          /**< The BITEXACT_BASIS bit that found the first mismatch, else 0. */
  int32_t mismatch_tensor;         /**< Of the first mismatch: 0 = out or q, 1 = k. */
  int32_t reserved;                /**< 0. */
  int64_t fused_calls;             /**< Calls served by the fused kernel. */
  int64_t reference_calls;         /**< Calls served by the built-in reference. */
  int64_t declined_calls;          /**< Calls answered UNVERIFIED, DECLINED or CAPTURING. */
  int64_t checks;                  /**< Comparisons run to their end. */
  int64_t compared;                /**< Elements compared in all checks. */
  int64_t nan_payload_differences; /**< Both NaN, other bits: held equal, counted here. */
  int64_t mismatches;              /**< Elements that differed in the declining check. */
  int64_t mismatch_index;          /**< Of the first: flat index in (b, t, h, d) or (b, r, c) order. */
  uint64_t mismatch_expected;      /**< Bits of the reference there. */
  uint64_t mismatch_actual;        /**< Bits of the fused kernel there. */
  const char* kernel_name;         /**< Static text that names every property of the kernel. */
} bitexact_gate_report;

/** Which part of a certificate to run. Since 0.9. */
typedef struct bitexact_certify_params {
  uint32_t struct_size; /**< sizeof(bitexact_certify_params). */
  uint32_t flags;       /**< None defined: 0. */
  int64_t kernel_index; /**< In [0, bitexact_gate_count()). */
  int64_t first_part;   /**< First part to run, from 0. */
  int64_t part_count;   /**< Parts to run now, each well under a second: show progress, stop in between. */
} bitexact_certify_params;

/** A certificate, summed up over the parts run so far. Zero it once, then pass it to every call. Since 0.9. */
typedef struct bitexact_certify_report {
  uint32_t struct_size;        /**< In: sizeof(bitexact_certify_report). */
  uint32_t flags;              /**< 0. */
  int64_t kernel_index;        /**< As asked. */
  int64_t parts_total;         /**< Parts of the whole certificate. */
  int64_t parts_done;          /**< Parts run so far. Fewer than parts_total proves nothing. */
  int64_t exhaustive_compared; /**< Elements of domains swept whole. */
  int64_t sampled_compared;    /**< Elements of sampled domains. */
  int64_t mismatches;          /**< Elements that differed. */
  int64_t nan_payload_differences;
  uint64_t digest;             /**< Order-free digest of the fused output bits. */
  uint64_t mismatch_inputs[4]; /**< Input bits of the first mismatch: gate, up; or x1, x2, cos, sin. */
  uint64_t mismatch_expected, mismatch_actual;
} bitexact_certify_report;

/* ---------------------------------------------------------------------- initialisers -- */
/* Each equals the bytes that the function of the same name writes: zeros, and struct_size. */
#define BITEXACT_ZEROS_10 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 /**< Part of the initialisers. */
#define BITEXACT_CONTEXT_OPTIONS_INIT \
  { (uint32_t)sizeof(bitexact_context_options), 0, 0, 0, 0, 0 }
#define BITEXACT_CONTEXT_INFO_INIT \
  { (uint32_t)sizeof(bitexact_context_info), BITEXACT_ZEROS_10, 0 }
#define BITEXACT_SILU_MUL_PARAMS_INIT \
  { (uint32_t)sizeof(bitexact_silu_mul_params), BITEXACT_ZEROS_10, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define BITEXACT_SILU_MUL_REFERENCE_INIT \
  { (uint32_t)sizeof(bitexact_silu_mul_reference), 0, 0, 0, 0 }
#define BITEXACT_ROPE_PARAMS_INIT                                                                    \
  {                                                                                                  \
    (uint32_t)sizeof(bitexact_rope_params), BITEXACT_ZEROS_10, BITEXACT_ZEROS_10, BITEXACT_ZEROS_10, \
        BITEXACT_ZEROS_10, 0, 0, 0, 0, 0, 0                                                          \
  }
#define BITEXACT_ROPE_REFERENCE_INIT \
  { (uint32_t)sizeof(bitexact_rope_reference), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define BITEXACT_GATE_REPORT_INIT \
  { (uint32_t)sizeof(bitexact_gate_report), BITEXACT_ZEROS_10, BITEXACT_ZEROS_10, 0, 0, 0, 0 }
#define BITEXACT_CERTIFY_PARAMS_INIT \
  { (uint32_t)sizeof(bitexact_certify_params), 0, 0, 0, 0 }
#define BITEXACT_CERTIFY_REPORT_INIT \
  { (uint32_t)sizeof(bitexact_certify_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, 0, 0 }

/** Sizes of the first version of each struct; they never change. */
#define BITEXACT_CONTEXT_OPTIONS_SIZE_V1 24
#define BITEXACT_CONTEXT_INFO_SIZE_V1 56
#define BITEXACT_SILU_MUL_PARAMS_SIZE_V1 120
#define BITEXACT_SILU_MUL_REFERENCE_SIZE_V1 32
#define BITEXACT_ROPE_PARAMS_SIZE_V1 336
#define BITEXACT_ROPE_REFERENCE_SIZE_V1 72
#define BITEXACT_GATE_REPORT_SIZE_V1 144
#define BITEXACT_CERTIFY_PARAMS_SIZE_V1 32
#define BITEXACT_CERTIFY_REPORT_SIZE_V1 120

/* ------------------------------------------------------- function types and the table -- */
typedef uint32_t (*bitexact_version_fn)(void);
typedef const char* (*bitexact_build_info_fn)(void);
typedef const char* (*bitexact_status_string_fn)(int32_t status);
typedef const char* (*bitexact_last_error_fn)(void);
typedef int32_t (*bitexact_last_cuda_error_fn)(void);
typedef void (*bitexact_context_options_init_fn)(bitexact_context_options* options);
typedef void (*bitexact_context_info_init_fn)(bitexact_context_info* info);
typedef void (*bitexact_silu_mul_params_init_fn)(bitexact_silu_mul_params* params);
typedef void (*bitexact_silu_mul_reference_init_fn)(bitexact_silu_mul_reference* reference);
typedef void (*bitexact_rope_params_init_fn)(bitexact_rope_params* params);
typedef void (*bitexact_rope_reference_init_fn)(bitexact_rope_reference* reference);
typedef void (*bitexact_gate_report_init_fn)(bitexact_gate_report* report);
typedef void (*bitexact_certify_params_init_fn)(bitexact_certify_params* params);
typedef void (*bitexact_certify_report_init_fn)(bitexact_certify_report* report);
typedef int32_t (*bitexact_context_create_fn)(const bitexact_context_options*, bitexact_context**);
typedef void (*bitexact_context_destroy_fn)(bitexact_context*);
typedef int32_t (*bitexact_context_set_log_fn)(bitexact_context*, bitexact_log_fn, void* user);
typedef int32_t (*bitexact_context_get_info_fn)(bitexact_context*, bitexact_context_info*);
typedef int32_t (*bitexact_fused_silu_mul_fn)(bitexact_context*, const bitexact_silu_mul_params*,
                                              bitexact_stream);
typedef int32_t (*bitexact_fused_silu_mul_can_use_fn)(bitexact_context*, const bitexact_silu_mul_params*);
typedef int32_t (*bitexact_fused_silu_mul_verify_fn)(bitexact_context*, const bitexact_silu_mul_params*,
                                                     const bitexact_silu_mul_reference*, bitexact_stream,
                                                     int32_t* verdict);
typedef int32_t (*bitexact_fused_rope_fn)(bitexact_context*, const bitexact_rope_params*, bitexact_stream);
typedef int32_t (*bitexact_fused_rope_can_use_fn)(bitexact_context*, const bitexact_rope_params*);
typedef int32_t (*bitexact_fused_rope_verify_fn)(bitexact_context*, const bitexact_rope_params*,
                                                 const bitexact_rope_reference*, bitexact_stream,
                                                 int32_t* verdict);
typedef int32_t (*bitexact_gate_warm_up_fn)(bitexact_context*, const bitexact_rope_params*,
                                            const bitexact_silu_mul_params*, bitexact_stream);
typedef int32_t (*bitexact_gate_count_fn)(bitexact_context*, int64_t* count);
typedef int32_t (*bitexact_gate_get_fn)(bitexact_context*, int64_t index, bitexact_gate_report*);
typedef int32_t (*bitexact_gate_reset_fn)(bitexact_context*);
typedef int32_t (*bitexact_certify_fn)(bitexact_context*, const bitexact_certify_params*,
                                       bitexact_certify_report*);

/** Every function, for callers that dlopen. Static, append-only, lives until the process ends. Members
 *  are the functions of the same names. Since 0.9. */
typedef struct bitexact_api {
  uint32_t struct_size; /**< Bytes that this library fills. */
  uint32_t api_version; /**< The version asked for. */
  bitexact_version_fn version;
  bitexact_build_info_fn build_info;
  bitexact_status_string_fn status_string;
  bitexact_last_error_fn last_error;
  bitexact_last_cuda_error_fn last_cuda_error;
  bitexact_context_options_init_fn context_options_init;
  bitexact_context_info_init_fn context_info_init;
  bitexact_silu_mul_params_init_fn silu_mul_params_init;
  bitexact_silu_mul_reference_init_fn silu_mul_reference_init;
  bitexact_rope_params_init_fn rope_params_init;
  bitexact_rope_reference_init_fn rope_reference_init;
  bitexact_gate_report_init_fn gate_report_init;
  bitexact_certify_params_init_fn certify_params_init;
  bitexact_certify_report_init_fn certify_report_init;
  bitexact_context_create_fn context_create;
  bitexact_context_destroy_fn context_destroy;
  bitexact_context_set_log_fn context_set_log;
  bitexact_context_get_info_fn context_get_info;
  bitexact_fused_silu_mul_fn fused_silu_mul;
  bitexact_fused_silu_mul_can_use_fn fused_silu_mul_can_use;
  bitexact_fused_silu_mul_verify_fn fused_silu_mul_verify;
  bitexact_fused_rope_fn fused_rope;
  bitexact_fused_rope_can_use_fn fused_rope_can_use;
  bitexact_fused_rope_verify_fn fused_rope_verify;
  bitexact_gate_warm_up_fn gate_warm_up;
  bitexact_gate_count_fn gate_count;
  bitexact_gate_get_fn gate_get;
  bitexact_gate_reset_fn gate_reset;
  bitexact_certify_fn certify;
} bitexact_api;

typedef int32_t (*bitexact_get_api_fn)(uint32_t api_version, const bitexact_api** out);

#ifndef BITEXACT_NO_PROTOTYPES
/* ----------------------------------------------------------- version, table, diagnostics -- */
/** BITEXACT_VERSION of the library. One of the two symbols that exist for ever. [any] Since 0.9. */
BITEXACT_EXPORT uint32_t bitexact_version(void) BITEXACT_NOEXCEPT;

/** The function table; the other symbol that exists for ever. Every version from 1 to the library's own is
 *  served. @param api_version BITEXACT_API_VERSION of the caller's header. @param out Out: the table, or
 *  null on error. @return API_VERSION if the library is older; the text names both. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_get_api(uint32_t api_version, const bitexact_api** out) BITEXACT_NOEXCEPT;

/** One line: version, source revision, compilers, architectures. Static. [any] Since 0.9. */
BITEXACT_EXPORT const char* bitexact_build_info(void) BITEXACT_NOEXCEPT;

/** Name and meaning of a status; never null, also for unknown numbers. Static. [any] Since 0.9. */
BITEXACT_EXPORT const char* bitexact_status_string(int32_t status) BITEXACT_NOEXCEPT;

/** Text of the last non-zero status on this thread: function, argument, value received, what is accepted.
 *  Never null. Valid until the next failing call on this thread. [any] Since 0.9. */
BITEXACT_EXPORT const char* bitexact_last_error(void) BITEXACT_NOEXCEPT;

/** The raw cudaError_t behind the last non-zero status on this thread, or 0. [any] Since 0.9. */
BITEXACT_EXPORT int32_t bitexact_last_cuda_error(void) BITEXACT_NOEXCEPT;

/** Write zeros and struct_size; null is ignored. For bindings, which cannot use macros. [any] Since 0.9. */
BITEXACT_EXPORT void bitexact_context_options_init(bitexact_context_options* options) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_context_info_init(bitexact_context_info* info) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_silu_mul_params_init(bitexact_silu_mul_params* params) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_silu_mul_reference_init(bitexact_silu_mul_reference* reference)
    BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_rope_params_init(bitexact_rope_params* params) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_rope_reference_init(bitexact_rope_reference* reference) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_gate_report_init(bitexact_gate_report* report) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_certify_params_init(bitexact_certify_params* params) BITEXACT_NOEXCEPT;
BITEXACT_EXPORT void bitexact_certify_report_init(bitexact_certify_report* report) BITEXACT_NOEXCEPT;

/* --------------------------------------------------------------------------- context -- */
/** Makes a context. Checks load their kernels (TRUST: all here). Cheap after the first on a device; make
 *  one for each model or mount site. @param options Null = all defaults. @param out Out: the context; null
 *  on error. @return environment statuses, INVALID_DEVICE, ENVIRONMENT. Safe while another thread captures.
 *  [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_context_create(const bitexact_context_options* options,
                                              bitexact_context** out) BITEXACT_NOEXCEPT;

/** Frees a context; null is ignored. Enqueued work goes on. Not needed at process exit; harmless in a forked
 *  child. [alone] Since 0.9. */
BITEXACT_EXPORT void bitexact_context_destroy(bitexact_context* context) BITEXACT_NOEXCEPT;

/** Sets the log function; null stops logging. @param user handed back. [alone] Since 0.9. */
BITEXACT_CALL int32_t bitexact_context_set_log(bitexact_context* context, bitexact_log_fn log,
                                               void* user) BITEXACT_NOEXCEPT;

/** Facts. Reads one counter from the device: not for hot paths. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_context_get_info(bitexact_context* context,
                                                bitexact_context_info* info) BITEXACT_NOEXCEPT;

/* ------------------------------------------------------------------------ operations -- */
/** Runs the operation on the stream. In BUILTIN mode 0 means that out holds (in stream order) the contract's
 *  bits, from the fused kernel or from the reference. @return in CALLER mode also UNVERIFIED, DECLINED,
 *  CAPTURING; under STRICT also DECLINED; INTERNAL where the reference itself is wrong. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_fused_silu_mul(bitexact_context* context,
                                              const bitexact_silu_mul_params* params,
                                              bitexact_stream stream) BITEXACT_NOEXCEPT;
BITEXACT_CALL int32_t bitexact_fused_rope(bitexact_context* context, const bitexact_rope_params* params,
                                          bitexact_stream stream) BITEXACT_NOEXCEPT;

/** Would this call be served fused? Checks everything that the call checks, enqueues nothing, touches no
 *  pointer. @param context Null: check the arguments alone; needs no GPU. @return 0; a refusal; UNVERIFIED
 *  (undecided, CALLER mode) or DECLINED. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_fused_silu_mul_can_use(
    bitexact_context* context, const bitexact_silu_mul_params* params) BITEXACT_NOEXCEPT;
BITEXACT_CALL int32_t bitexact_fused_rope_can_use(bitexact_context* context,
                                                  const bitexact_rope_params* params) BITEXACT_NOEXCEPT;

/** CALLER mode: compares the fused kernel, run into scratch on `params`, with the framework's result and
 *  latches the verdict. Call it after an UNVERIFIED, with the same params; inputs must still hold what eager
 *  read. Output pointers of params are not touched. Synchronises the stream. @param verdict Out, may be null:
 *  BITEXACT_STATE value. @return 0 also for a decline; CAPTURING, OUT_OF_MEMORY, CUDA_ERROR leave it
 *  undecided; WRONG_MODE in BUILTIN mode. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_fused_silu_mul_verify(bitexact_context* context,
                                                     const bitexact_silu_mul_params* params,
                                                     const bitexact_silu_mul_reference* reference,
                                                     bitexact_stream stream,
                                                     int32_t* verdict) BITEXACT_NOEXCEPT;
BITEXACT_CALL int32_t bitexact_fused_rope_verify(bitexact_context* context,
                                                 const bitexact_rope_params* params,
                                                 const bitexact_rope_reference* reference,
                                                 bitexact_stream stream, int32_t* verdict) BITEXACT_NOEXCEPT;

/* ------------------------------------------------------------------------------ gate -- */
/** Decides by probe alone, ahead of a capture: the kernels that these two calls would use (either may be
 *  null; pointers only count for their alignment), or every kernel if both are null. In CALLER mode only a
 *  decline is latched. Synchronises the stream. @return 0, CAPTURING, or environment. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_gate_warm_up(bitexact_context* context, const bitexact_rope_params* rope,
                                            const bitexact_silu_mul_params* silu_mul,
                                            bitexact_stream stream) BITEXACT_NOEXCEPT;

/** Number of kernels in the library. @param count Out. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_gate_count(bitexact_context* context, int64_t* count) BITEXACT_NOEXCEPT;

/** The report of one kernel. @param index In [0, count). Indices may change between builds. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_gate_get(bitexact_context* context, int64_t index,
                                        bitexact_gate_report* report) BITEXACT_NOEXCEPT;

/** Forgets every verdict and counter of the context. [alone] Since 0.9. */
BITEXACT_CALL int32_t bitexact_gate_reset(bitexact_context* context) BITEXACT_NOEXCEPT;

/** Runs parts of a kernel's certificate on the default stream, waits, and adds to the report; part_count 0 asks
 *  for parts_total alone. A difference declines the kernel; all parts, run in order, accept it. @return INDEX;
 *  INVALID_VALUE unless first_part is the report's parts_done; UNSUPPORTED; CAPTURING. [any] Since 0.9. */
BITEXACT_CALL int32_t bitexact_certify(bitexact_context* context, const bitexact_certify_params* params,
                                       bitexact_certify_report* report) BITEXACT_NOEXCEPT;

#endif /* BITEXACT_NO_PROTOTYPES */
#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* BITEXACT_H_ */
