//! Which silu candle computes: it differs between dtypes, devices and versions of candle, so it is found by
//! trying all 65,536 inputs once.
use std::collections::HashMap;
use std::sync::Mutex;

use bitexact::{Bf16, Context, Element, Host, Library, Options, Silu, SiluMul, View, ViewMut, F16};
use candle_core::{DType, Device, DeviceLocation, Result, Tensor};

use crate::fallback::Refusal;
use crate::Numerics;

const CANDIDATES: [Silu; 2] = [Silu::Candle, Silu::Aten];

/// None of the candidates, or one of them.
type Choices = HashMap<(DeviceLocation, DType), Option<Silu>>;

static CHOICES: Mutex<Option<Choices>> = Mutex::new(None);

/// The silu to ask the library for. Before `find` has run, some candidate: its kernel is then undecided too.
pub fn silu(numerics: Numerics, dtype: DType, device: DeviceLocation) -> std::result::Result<Silu, Refusal> {
    if numerics == Numerics::Torch || !matches!(dtype, DType::BF16 | DType::F16) {
        // In wider types all chains are PyTorch's.
        return Ok(Silu::Aten);
    }
    let choices = CHOICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let known = choices.as_ref().and_then(|choices| choices.get(&(device, dtype)));
    known
        .copied()
        .unwrap_or(Some(CANDIDATES[0]))
        .ok_or_else(|| Refusal::Other("candle's silu on this device is none that the library has".to_owned()))
}

/// Compares candle's silu of every input on the device with the candidates, once.
pub fn find(numerics: Numerics, dtype: DType, device: &Device) -> Result<()> {
    if numerics == Numerics::Torch || !matches!(dtype, DType::BF16 | DType::F16) {
        return Ok(());
    }
    let key = (device.location(), dtype);
    let lock = || CHOICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if lock().as_ref().is_some_and(|choices| choices.contains_key(&key)) {
        return Ok(());
    }
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let gate = Tensor::from_raw_buffer(&every, dtype, &[1 << 16], device)?;
    let mut bytes = Vec::new();
    gate.silu()?.write_bytes(&mut bytes)?;
    let words = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    // Any NaN is as good as another.
    let infinity = if dtype == DType::BF16 { 0x7f80 } else { 0x7c00 };
    let candle: Vec<u16> = words.map(|word| if word & 0x7fff > infinity { 0x7fff } else { word }).collect();

    let table = |silu| match dtype {
        DType::BF16 => table(silu, Bf16, 0x3f80, |value| value.0),
        _ => table(silu, F16, 0x3c00, |value| value.0),
    };
    let mut found = None;
    for silu in CANDIDATES {
        if table(silu).map_err(candle_core::Error::wrap)? == candle {
            found = Some(silu);
            break;
        }
    }
    lock().get_or_insert_with(HashMap::new).insert(key, found);
    Ok(())
}

/// The library's silu of every 16-bit input, times `one`. Host and device give the same bits.
fn table<T: Element>(
    silu: Silu,
    of: fn(u16) -> T,
    one: u16,
    bits: fn(T) -> u16,
) -> std::result::Result<Vec<u16>, Refusal> {
    let context: Context<Host> = Library::linked()?.host_context(Options::default())?;
    let gate: Vec<T> = (0..=u16::MAX).map(of).collect();
    let up = vec![of(one); gate.len()];
    let mut out = vec![of(0); gate.len()];
    let shape = [gate.len()];
    let views = (View::contiguous(&gate, &shape)?, View::contiguous(&up, &shape)?);
    let mut call = SiluMul::new(views.0, views.1, ViewMut::contiguous(&mut out, &shape)?)?.silu(silu);
    crate::call::served(context.silu_mul(&mut call)?)?;
    Ok(out.into_iter().map(bits).collect())
}
