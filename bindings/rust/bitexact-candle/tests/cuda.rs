//! On a CUDA device, with the feature `cuda`: fused against candle's slow chain, byte by byte, and candle's own
//! fused rope beside it, which is not the chain.
#![cfg(feature = "cuda")]
mod common;

use bitexact_candle::{
    fallbacks, reports, rope, rope_qk, rotary_emb, silu_mul, swiglu, GateReport, Numerics, RopeSpec, Verdict,
};
use candle_core::{DType, Device, Tensor};
use common::{assert_same_bits, bits, differing, every_16_bit_value, served, tensor, DTYPES};

fn device() -> Device {
    Device::new_cuda(0).expect("this test needs a CUDA device")
}

#[test]
fn rope_is_candles_slow_rope_on_views_too() {
    let device = device();
    for dtype in DTYPES {
        for interleaved in [false, true] {
            // Cut from one tensor, after other elements.
            let qkv = tensor(1, &[2, 33, 10, 64], dtype, &device);
            let heads = |start, count| qkv.narrow(2, start, count).unwrap().transpose(1, 2).unwrap();
            let (q, k) = (heads(1, 4), heads(6, 2));
            let (cos, sin) = (tensor(2, &[40, 32], dtype, &device), tensor(3, &[40, 32], dtype, &device));
            let spec = if interleaved { RopeSpec::interleaved() } else { RopeSpec::half() };
            let slow = |x: &Tensor| match interleaved {
                false => candle_nn::rotary_emb::rope_slow(x, &cos, &sin).unwrap(),
                true => candle_nn::rotary_emb::rope_i_slow(x, &cos, &sin).unwrap(),
            };
            for _ in 0..3 {
                assert_same_bits(&rope(&q, &cos, &sin, &spec).unwrap(), &slow(&q), "rope");
                let (q_out, k_out) = rope_qk(&q, &k, &cos, &sin, &spec).unwrap();
                assert_same_bits(&q_out, &slow(&q), "q");
                assert_same_bits(&k_out, &slow(&k), "k");
            }
        }
    }
    assert!(served(&device, "rope") >= 12, "{:?}", reports(&device).unwrap());
}

#[test]
fn silu_mul_of_every_16_bit_input_is_candles_chain() {
    let device = device();
    for dtype in [DType::BF16, DType::F16] {
        let gate = every_16_bit_value(dtype, &device);
        let on_cpu = every_16_bit_value(dtype, &Device::Cpu).silu().unwrap();
        println!(
            "{dtype:?}: candle's silu differs from its CPU on {} inputs",
            differing(&gate.silu().unwrap(), &on_cpu)
        );
        for seed in 0..4 {
            let up = tensor(seed, &[256, 256], dtype, &device);
            let candle = (gate.silu().unwrap() * &up).unwrap();
            let torch = gate.to_dtype(DType::F32).unwrap().silu().unwrap().to_dtype(dtype).unwrap();
            let torch = (torch * &up).unwrap();
            for _ in 0..2 {
                assert_same_bits(&silu_mul(&gate, &up, Numerics::Candle).unwrap(), &candle, "candle");
                assert_same_bits(&silu_mul(&gate, &up, Numerics::Torch).unwrap(), &torch, "torch");
            }
        }
    }
    for dtype in DTYPES {
        let packed = tensor(9, &[5, 7, 128], dtype, &device);
        let expected = candle_nn::ops::swiglu(&packed).unwrap();
        for _ in 0..2 {
            assert_same_bits(&swiglu(&packed, Numerics::Candle).unwrap(), &expected, "swiglu");
        }
    }
    for report in reports(&device).unwrap().iter().filter(|report| report.checks > 0) {
        println!("{}: {:?}, {} fused calls", report.kernel, report.verdict, report.fused_calls);
    }
    let declined = |report: &GateReport| report.verdict == Verdict::Declined;
    assert!(!reports(&device).unwrap().iter().any(declined), "{:?}", fallbacks());
    for dtype in ["bfloat16", "float16", "float32"] {
        assert!(served(&device, &format!("fused_silu_mul {dtype}")) > 0, "{dtype}: {:?}", fallbacks());
    }
}

#[test]
fn many_threads_and_devices_share_the_verdicts() {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let device = device();
                let x = tensor(seed, &[1, 8, 300, 128], DType::BF16, &device);
                let (cos, sin) = (
                    tensor(5, &[300, 64], DType::BF16, &device),
                    tensor(6, &[300, 64], DType::BF16, &device),
                );
                let slow = candle_nn::rotary_emb::rope_slow(&x, &cos, &sin).unwrap();
                for _ in 0..20 {
                    assert_same_bits(&rotary_emb::rope(&x, &cos, &sin).unwrap(), &slow, "rope");
                }
            });
        }
    });
    // A stream of its own instead of the thread's.
    let device = Device::new_cuda_with_stream(0).unwrap();
    let x = tensor(8, &[1, 8, 300, 128], DType::F16, &device);
    let tables = (tensor(5, &[300, 64], DType::F16, &device), tensor(6, &[300, 64], DType::F16, &device));
    let slow = candle_nn::rotary_emb::rope_i_slow(&x, &tables.0, &tables.1).unwrap();
    for _ in 0..3 {
        assert_same_bits(&rotary_emb::rope_i(&x, &tables.0, &tables.1).unwrap(), &slow, "own stream");
    }
}

#[test]
fn candles_fused_rope_is_not_its_chain() {
    let device = device();
    let mut differ = 0;
    for dtype in DTYPES {
        let x = tensor(1, &[1, 16, 512, 128], dtype, &device);
        let angles = tensor(2, &[512, 64], DType::F32, &device);
        let cos = angles.cos().unwrap().to_dtype(dtype).unwrap();
        let sin = angles.sin().unwrap().to_dtype(dtype).unwrap();
        let fused = candle_nn::rotary_emb::rope(&x, &cos, &sin).unwrap();
        let slow = candle_nn::rotary_emb::rope_slow(&x, &cos, &sin).unwrap();
        let wrong = differing(&fused, &slow);
        println!("{dtype:?}: candle's rope differs from rope_slow in {wrong} of {} elements", x.elem_count());
        for _ in 0..2 {
            assert_same_bits(&rotary_emb::rope(&x, &cos, &sin).unwrap(), &slow, "ours");
        }
        differ += usize::from(wrong > 0);
    }
    // The comparison can see a contraction: every build contracts at least float16 and float32.
    assert!(differ >= 2);
}

#[test]
fn gradients_survive() {
    let device = device();
    let x = candle_core::Var::from_tensor(&tensor(1, &[1, 2, 8, 16], DType::F32, &device)).unwrap();
    let (cos, sin) = (tensor(2, &[8, 8], DType::F32, &device), tensor(3, &[8, 8], DType::F32, &device));
    for _ in 0..2 {
        let ours = rope(&x, &cos, &sin, &RopeSpec::half()).unwrap().sum_all().unwrap().backward().unwrap();
        let slow =
            candle_nn::rotary_emb::rope_slow(&x, &cos, &sin).unwrap().sum_all().unwrap().backward().unwrap();
        let plus_zero =
            |store: &candle_core::backprop::GradStore| (store.get(&x).unwrap().clone() + 0.0).unwrap();
        assert_eq!(bits(&plus_zero(&ours)), bits(&plus_zero(&slow)));
    }
}

#[test]
fn a_captured_call_is_fused_and_replays() {
    use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

    let device = Device::new_cuda_with_stream(0).unwrap();
    let Device::Cuda(cuda) = &device else { unreachable!() };
    // SAFETY: this test uses the one stream.
    unsafe { cuda.disable_event_tracking() };
    let stream = cuda.cuda_stream();
    let (gate, up) = (tensor(1, &[64, 256], DType::F16, &device), tensor(2, &[64, 256], DType::F16, &device));
    let expected = (gate.silu().unwrap() * &up).unwrap();
    for _ in 0..2 {
        assert_same_bits(&silu_mul(&gate, &up, Numerics::Candle).unwrap(), &expected, "before");
    }
    let before = served(&device, "fused_silu_mul float16 candle");
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let result = silu_mul(&gate, &up, Numerics::Candle);
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().expect("a graph");
    let result = result.unwrap();
    for _ in 0..3 {
        graph.launch().unwrap();
        assert_same_bits(&result, &expected, "replay");
    }
    assert_eq!(served(&device, "fused_silu_mul float16 candle"), before + 1);
    // The memory belongs to the graph.
    std::mem::forget(result);
}
