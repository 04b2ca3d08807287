//! Seeded tensors and comparison of bits.
#![allow(dead_code)]
use bitexact_candle::reports;
use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

pub const DTYPES: [DType; 3] = [DType::BF16, DType::F16, DType::F32];

/// Values in (-4, 4), the same for a seed on every machine.
pub fn tensor(seed: u64, shape: &[usize], dtype: DType, device: &Device) -> Tensor {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 2_097_152.0 - 4.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_vec(values, shape, device).unwrap().to_dtype(dtype).unwrap()
}

/// All 65,536 bit patterns, as (256, 256).
pub fn every_16_bit_value(dtype: DType, device: &Device) -> Tensor {
    match dtype {
        DType::BF16 => Tensor::from_vec((0..=u16::MAX).map(bf16::from_bits).collect(), (256, 256), device),
        _ => Tensor::from_vec((0..=u16::MAX).map(f16::from_bits).collect(), (256, 256), device),
    }
    .unwrap()
}

/// The bits of a tensor; every NaN as one value.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    let flat = tensor.flatten_all().unwrap();
    let one = |nan: bool, bits: u32| if nan { u32::MAX } else { bits };
    match tensor.dtype() {
        DType::BF16 => {
            flat.to_vec1::<bf16>().unwrap().iter().map(|x| one(x.is_nan(), x.to_bits().into())).collect()
        }
        DType::F16 => {
            flat.to_vec1::<f16>().unwrap().iter().map(|x| one(x.is_nan(), x.to_bits().into())).collect()
        }
        DType::F32 => flat.to_vec1::<f32>().unwrap().iter().map(|x| one(x.is_nan(), x.to_bits())).collect(),
        other => panic!("{other:?}"),
    }
}

pub fn differing(a: &Tensor, b: &Tensor) -> usize {
    bits(a).iter().zip(bits(b)).filter(|(a, b)| **a != *b).count()
}

pub fn assert_same_bits(actual: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!((actual.dims(), actual.dtype()), (expected.dims(), expected.dtype()), "{what}");
    let wrong = differing(actual, expected);
    assert_eq!(wrong, 0, "{what}: {wrong} of {} differ", actual.elem_count());
}

/// Calls that fused kernels with this word in their name have served.
pub fn served(device: &Device, word: &str) -> i64 {
    let reports = reports(device).unwrap();
    reports.iter().filter(|report| report.kernel.contains(word)).map(|report| report.fused_calls).sum()
}
