//! On the CPU: the fused functions against candle's own, byte by byte.
mod common;

use bitexact_candle::{fallbacks, reports, rope, rope_qk, rotary_emb, silu_mul, swiglu, Numerics, RopeSpec};
use candle_core::{DType, Device, Result, Tensor, Var, D};
use common::{assert_same_bits, bits, every_16_bit_value, served, tensor, DTYPES};

const CPU: Device = Device::Cpu;

/// candle's slow functions take tables of two axes.
fn slow(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    match interleaved {
        false => candle_nn::rotary_emb::rope_slow(x, cos, sin),
        true => candle_nn::rotary_emb::rope_i_slow(x, cos, sin),
    }
}

#[test]
fn rope_is_candles_slow_rope() {
    for (seed, dtype) in DTYPES.into_iter().enumerate() {
        for interleaved in [false, true] {
            let x = tensor(seed as u64, &[2, 3, 7, 16], dtype, &CPU);
            let (cos, sin) = (tensor(11, &[9, 8], dtype, &CPU), tensor(12, &[9, 8], dtype, &CPU));
            let spec = if interleaved { RopeSpec::interleaved() } else { RopeSpec::half() };
            let expected = slow(&x, &cos, &sin, interleaved).unwrap();
            // The first call compares, the later ones are served.
            for round in 0..3 {
                let what = format!("{dtype:?}, interleaved {interleaved}, call {round}");
                assert_same_bits(&rope(&x, &cos, &sin, &spec).unwrap(), &expected, &what);
                let twin = if interleaved { rotary_emb::rope_i } else { rotary_emb::rope };
                assert_same_bits(&twin(&x, &cos, &sin).unwrap(), &expected, &what);
            }
            // candle's fused functions agree with the slow ones on the CPU.
            let fused = if interleaved { candle_nn::rotary_emb::rope_i } else { candle_nn::rotary_emb::rope };
            assert_same_bits(&fused(&x, &cos, &sin).unwrap(), &expected, "candle's fused form");
        }
    }
    for dtype in ["bfloat16", "float16", "float32"] {
        assert!(served(&CPU, &format!("fused_rope {dtype}")) > 0, "{dtype}: {:?}", fallbacks());
    }
}

#[test]
fn rope_thd_and_batched_tables_are_candles() {
    for dtype in DTYPES {
        let x = tensor(1, &[2, 7, 3, 16], dtype, &CPU);
        let (cos, sin) = (tensor(2, &[2, 7, 8], dtype, &CPU), tensor(3, &[2, 7, 8], dtype, &CPU));
        let expected = candle_nn::rotary_emb::rope_thd(&x, &cos, &sin).unwrap();
        for _ in 0..2 {
            assert_same_bits(&rotary_emb::rope_thd(&x, &cos, &sin).unwrap(), &expected, "thd");
        }
        let heads_first = x.transpose(1, 2).unwrap().contiguous().unwrap();
        let expected = candle_nn::rotary_emb::rope_i(&heads_first, &cos, &sin).unwrap();
        for _ in 0..2 {
            assert_same_bits(&rotary_emb::rope_i(&heads_first, &cos, &sin).unwrap(), &expected, "batched");
            // A transposed view needs no copy.
            let view = x.transpose(1, 2).unwrap();
            assert_same_bits(&rotary_emb::rope_i(&view, &cos, &sin).unwrap(), &expected, "view");
        }
    }
}

#[test]
fn q_and_k_cut_from_one_tensor_rotate_together() {
    for dtype in DTYPES {
        let qkv = tensor(4, &[2, 5, 6, 32], dtype, &CPU);
        let (q, k) = (qkv.narrow(2, 0, 4).unwrap(), qkv.narrow(2, 4, 1).unwrap());
        let (cos, sin) = (tensor(5, &[5, 16], dtype, &CPU), tensor(6, &[5, 16], dtype, &CPU));
        let spec = RopeSpec::half().tokens_first();
        let slow = |x: &Tensor| slow(&x.transpose(1, 2)?, &cos, &sin, false)?.transpose(1, 2);
        for _ in 0..3 {
            let (q_out, k_out) = rope_qk(&q, &k, &cos, &sin, &spec).unwrap();
            assert_same_bits(&q_out, &slow(&q).unwrap(), "q");
            assert_same_bits(&k_out, &slow(&k).unwrap(), "k");
        }
    }
    assert!(served(&CPU, "rope") > 0);
}

#[test]
fn flux_tables_are_read_in_place() {
    // (batch, 1, tokens, pairs, 2, 2) of [[cos, -sin], [sin, cos]], as candle-transformers' flux makes it.
    let (cos, sin) = (tensor(7, &[1, 1, 6, 8], DType::F32, &CPU), tensor(8, &[1, 1, 6, 8], DType::F32, &CPU));
    let matrix = Tensor::stack(&[&cos, &sin.neg().unwrap(), &sin, &cos], D::Minus1).unwrap();
    let matrix = matrix.reshape((1, 1, 6, 8, 2, 2)).unwrap();
    let entry = |row, column| {
        let row = matrix.narrow(4, row, 1).unwrap().squeeze(4).unwrap();
        row.narrow(4, column, 1).unwrap().squeeze(4).unwrap()
    };
    let x = tensor(9, &[1, 3, 6, 16], DType::F32, &CPU);
    let pairs = x.reshape((1, 3, 6, 8, 2)).unwrap();
    let at = |index| pairs.narrow(4, index, 1).unwrap().squeeze(4).unwrap();
    let product = |row, column, index| at(index).broadcast_mul(&entry(row, column)).unwrap();
    let first = (product(0, 0, 0) + product(0, 1, 1)).unwrap();
    let second = (product(1, 0, 0) + product(1, 1, 1)).unwrap();
    let expected = Tensor::stack(&[first, second], D::Minus1).unwrap().reshape(x.shape()).unwrap();
    for _ in 0..2 {
        let result = rope(&x, &entry(0, 0), &entry(1, 0), &RopeSpec::interleaved()).unwrap();
        assert_same_bits(&result, &expected, "flux");
    }
}

#[test]
fn wide_tables_upcasts_and_partial_rotation_are_their_chains() {
    let x = tensor(10, &[1, 2, 5, 24], DType::BF16, &CPU);
    let tables = |width, dtype| (tensor(11, &[5, width], dtype, &CPU), tensor(12, &[5, width], dtype, &CPU));
    let half_turn = |x: &Tensor| {
        let half = x.dim(D::Minus1).unwrap() / 2;
        let (a, b) = (x.narrow(D::Minus1, 0, half).unwrap(), x.narrow(D::Minus1, half, half).unwrap());
        Tensor::cat(&[b.neg().unwrap(), a], D::Minus1).unwrap()
    };
    for _ in 0..2 {
        // Tables of one entry for each element.
        let (cos, sin) = tables(24, DType::BF16);
        let expected = (x.broadcast_mul(&cos).unwrap() + half_turn(&x).broadcast_mul(&sin).unwrap()).unwrap();
        let result = rope(&x, &cos, &sin, &RopeSpec::half().full_width()).unwrap();
        assert_same_bits(&result, &expected, "full width");
        // Upcast, rotate in float32, cast back.
        let (cos, sin) = tables(12, DType::F32);
        let wide = x.to_dtype(DType::F32).unwrap();
        let expected = slow(&wide, &cos, &sin, true).unwrap().to_dtype(DType::BF16).unwrap();
        let result = rope(&x, &cos, &sin, &RopeSpec::interleaved()).unwrap();
        assert_same_bits(&result, &expected, "float32 tables");
        // The first 16 of 24 elements rotate.
        let (cos, sin) = tables(8, DType::BF16);
        let head = x.narrow(D::Minus1, 0, 16).unwrap();
        let rotated = slow(&head.contiguous().unwrap(), &cos, &sin, false).unwrap();
        let expected = Tensor::cat(&[rotated, x.narrow(D::Minus1, 16, 8).unwrap()], D::Minus1).unwrap();
        let result = rope(&x, &cos, &sin, &RopeSpec::half()).unwrap();
        assert_same_bits(&result, &expected, "partial");
    }
}

#[test]
fn silu_mul_of_every_16_bit_input_is_candles_chain() {
    for dtype in [DType::BF16, DType::F16] {
        let gate = every_16_bit_value(dtype, &CPU);
        for seed in 0..8 {
            let up = tensor(seed, &[256, 256], dtype, &CPU);
            let candle = (gate.silu().unwrap() * &up).unwrap();
            let torch = gate.to_dtype(DType::F32).unwrap().silu().unwrap().to_dtype(dtype).unwrap();
            let torch = (torch * &up).unwrap();
            for _ in 0..2 {
                assert_same_bits(&silu_mul(&gate, &up, Numerics::Candle).unwrap(), &candle, "candle");
                assert_same_bits(&silu_mul(&gate, &up, Numerics::Torch).unwrap(), &torch, "torch");
            }
            assert_ne!(bits(&candle), bits(&torch), "the two chains differ");
        }
    }
    for kernel in ["bfloat16 candle", "float16 candle", "bfloat16 aten", "float16 aten"] {
        assert!(served(&CPU, &format!("fused_silu_mul {kernel}")) > 0, "{kernel}: {:?}", fallbacks());
    }
}

#[test]
fn swiglu_and_strided_gates_are_candles_chain() {
    for dtype in DTYPES {
        let packed = tensor(20, &[3, 5, 64], dtype, &CPU);
        let rows = tensor(21, &[5, 80], dtype, &CPU);
        let (gate, up) = (rows.narrow(1, 3, 32).unwrap(), rows.narrow(1, 40, 32).unwrap());
        let columns = tensor(22, &[32, 5], dtype, &CPU).t().unwrap();
        for _ in 0..3 {
            let expected = candle_nn::ops::swiglu(&packed).unwrap();
            assert_same_bits(&swiglu(&packed, Numerics::Candle).unwrap(), &expected, "swiglu");
            let expected = (gate.silu().unwrap() * &up).unwrap();
            assert_same_bits(&silu_mul(&gate, &up, Numerics::Candle).unwrap(), &expected, "rows");
            // Columns that are not contiguous run as the chain, and it is told.
            let expected = (columns.silu().unwrap() * &up).unwrap();
            assert_same_bits(&silu_mul(&columns, &up, Numerics::Candle).unwrap(), &expected, "columns");
        }
    }
    assert!(fallbacks().iter().any(|f| f.operation == "silu_mul" && f.reason.contains("innermost stride")));
}

#[test]
fn what_the_library_does_not_offer_runs_as_the_chain_and_is_told() {
    let (gate, up) = (tensor(30, &[4, 8], DType::F32, &CPU), tensor(31, &[4, 8], DType::F32, &CPU));
    let expected = (gate.silu().unwrap() * &up).unwrap();
    assert_same_bits(&silu_mul(&gate, &up, Numerics::Candle).unwrap(), &expected, "float32");
    let wide = gate.to_dtype(DType::F64).unwrap();
    let expected = (wide.silu().unwrap() * &wide).unwrap();
    let result = silu_mul(&wide, &wide, Numerics::Candle).unwrap();
    assert_eq!(result.to_vec2::<f64>().unwrap(), expected.to_vec2::<f64>().unwrap());
    let told = fallbacks();
    assert!(told.iter().any(|f| f.operation == "silu_mul" && f.reason.contains("FLOAT32")), "{told:?}");
    assert!(told.iter().any(|f| f.operation == "silu_mul" && f.calls > 0));
    // Tensors that do not fit each other stay candle's error.
    assert!(silu_mul(&gate, &up.narrow(0, 0, 3).unwrap(), Numerics::Candle).is_err());
    assert!(swiglu(&gate.narrow(1, 0, 7).unwrap(), Numerics::Candle).is_err());
}

/// The gradient of the sum of `f(x) * weight`.
fn gradient(x: &Tensor, weight: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Tensor {
    let x = Var::from_tensor(x).unwrap();
    let result = (f(&x).unwrap() * weight).unwrap();
    let store = result.sum_all().unwrap().backward().unwrap();
    // Zeros of either sign are one value here: candle adds up gradients from +0.
    (store.get(&x).expect("a gradient").clone() + 0.0).unwrap()
}

#[test]
fn gradients_are_those_of_the_chain() {
    for dtype in [DType::F32, DType::BF16] {
        let t = |seed, shape: &[usize]| tensor(seed, shape, dtype, &CPU);
        let (x, weight) = (t(40, &[1, 2, 5, 16]), t(41, &[1, 2, 5, 16]));
        let (cos, sin) = (t(42, &[5, 8]), t(43, &[5, 8]));
        let (wide_cos, wide_sin) = (t(44, &[5, 16]), t(45, &[5, 16]));
        for _ in 0..2 {
            let ours = gradient(&x, &weight, |x| rope(x, &cos, &sin, &RopeSpec::half()));
            let chain = gradient(&x, &weight, |x| slow(x, &cos, &sin, false));
            assert_same_bits(&ours, &chain, "rope");
            let ours = gradient(&x, &weight, |x| rope(x, &cos, &sin, &RopeSpec::interleaved()));
            let chain = gradient(&x, &weight, |x| slow(x, &cos, &sin, true));
            assert_same_bits(&ours, &chain, "interleaved");
            let both = |x: &Tensor| rope_qk(x, &x.narrow(1, 0, 1)?, &cos, &sin, &RopeSpec::half());
            let ours = gradient(&x, &weight, |x| Ok(both(x)?.0));
            let chain = gradient(&x, &weight, |x| slow(x, &cos, &sin, false));
            assert_same_bits(&ours, &chain, "q of both");
            let spec = RopeSpec::half().full_width();
            let ours = gradient(&x, &weight, |x| rope(x, &wide_cos, &wide_sin, &spec));
            let half_turn =
                |x: &Tensor| Tensor::cat(&[x.narrow(3, 8, 8)?.neg()?, x.narrow(3, 0, 8)?], D::Minus1);
            let full = |x: &Tensor| x.broadcast_mul(&wide_cos)? + half_turn(x)?.broadcast_mul(&wide_sin)?;
            let chain = gradient(&x, &weight, full);
            assert_same_bits(&ours, &chain, "full width");

            let (gate, up, weight) = (t(46, &[4, 8]), t(47, &[4, 8]), t(48, &[4, 8]));
            let ours = gradient(&gate, &weight, |gate| silu_mul(gate, &up, Numerics::Candle));
            let chain = gradient(&gate, &weight, |gate| gate.silu()? * &up);
            assert_same_bits(&ours, &chain, "gate");
            let ours = gradient(&up, &weight, |up| silu_mul(&gate, up, Numerics::Candle));
            let chain = gradient(&up, &weight, |up| gate.silu()? * up);
            assert_same_bits(&ours, &chain, "up");
            let half = weight.narrow(1, 0, 4).unwrap();
            let ours = gradient(&gate, &half, |packed| swiglu(packed, Numerics::Candle));
            let chain = gradient(&gate, &half, candle_nn::ops::swiglu);
            assert_same_bits(&ours, &chain, "swiglu");
        }
        // Tables that learn keep their gradients.
        let learnt = gradient(&cos, &weight, |cos| rope(&x, cos, &sin, &RopeSpec::half()));
        let chain = gradient(&cos, &weight, |cos| {
            let (a, b) = (x.narrow(3, 0, 8)?, x.narrow(3, 8, 8)?);
            let first = (a.broadcast_mul(cos)? - b.broadcast_mul(&sin)?)?;
            let second = (b.broadcast_mul(cos)? + a.broadcast_mul(&sin)?)?;
            Tensor::cat(&[first, second], D::Minus1)
        });
        assert_same_bits(&learnt, &chain, "table");
    }
}

#[test]
fn reports_name_every_kernel() {
    let reports = reports(&CPU).unwrap();
    assert!(reports.len() > 10);
    assert!(reports.iter().all(|report| !report.kernel.is_empty() && report.mismatch.is_none()));
}
