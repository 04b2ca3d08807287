//! Links the library and runs both operations on the host, as a runtime does that holds raw pointers: create
//! a context, describe the tensors, call. On a GPU the same calls take device pointers and a stream.
use std::ffi::c_void;

use bitexact::{
    Answer, Context, DType, Error, Host, Library, Options, Rope, SiluMul, TableWidth, View, ViewMut,
};

const TOKENS: usize = 2;
const HEADS: usize = 2;
const DIM: usize = 8;
const COLS: usize = 8;

/// Memory as a runtime knows it: an address and a number of bfloat16 elements.
#[derive(Clone, Copy)]
struct Buffer {
    address: *mut c_void,
    len: usize,
}

impl Buffer {
    fn of(values: &mut [u16]) -> Buffer {
        Buffer { address: values.as_mut_ptr().cast(), len: values.len() }
    }

    /// Row-major strides of a shape.
    fn strides(shape: &[usize]) -> Vec<isize> {
        (0..shape.len()).map(|axis| shape[axis + 1..].iter().product::<usize>() as isize).collect()
    }

    /// # Safety
    /// As [`View::from_raw`].
    unsafe fn view<'a>(self, shape: &[usize]) -> Result<View<'a, Host>, Error> {
        let strides = Buffer::strides(shape);
        // SAFETY: passed on to the caller.
        Ok(unsafe { View::from_raw(self.address, self.len, DType::Bf16, 0, shape, &strides) }?)
    }

    /// # Safety
    /// As [`ViewMut::from_raw`].
    unsafe fn view_mut<'a>(self, shape: &[usize]) -> Result<ViewMut<'a, Host>, Error> {
        let strides = Buffer::strides(shape);
        // SAFETY: passed on to the caller.
        Ok(unsafe { ViewMut::from_raw(self.address, self.len, DType::Bf16, 0, shape, &strides) }?)
    }
}

fn run_silu_mul(context: &Context<Host>, gate: Buffer, up: Buffer, out: Buffer) -> Result<Answer, Error> {
    // SAFETY: main owns the three buffers, and nothing else uses them during the call.
    let mut call = unsafe { SiluMul::new(gate.view(&[COLS])?, up.view(&[COLS])?, out.view_mut(&[COLS])?) }?;
    context.silu_mul(&mut call)
}

/// Rotates q and k in place. The tables hold DIM / 2 entries for each token.
fn run_rope(
    context: &Context<Host>,
    q: Buffer,
    k: Buffer,
    cos: Buffer,
    sin: Buffer,
) -> Result<Answer, Error> {
    // SAFETY: main owns the four buffers, and nothing else uses them during the call.
    let mut call = unsafe {
        let table = [TOKENS, DIM / 2];
        let q = q.view_mut(&[1, TOKENS, HEADS, DIM])?;
        let k = k.view_mut(&[1, TOKENS, 1, DIM])?;
        Rope::new(q, cos.view(&table)?, sin.view(&table)?, TableWidth::Half)?.with_k(k)?
    };
    context.rope(&mut call)
}

fn print(name: &str, bits: &[u16]) {
    // bfloat16 is the upper half of a float.
    let words: Vec<String> =
        bits.iter().map(|&b| format!("{b:04x} ({})", f32::from_bits(u32::from(b) << 16))).collect();
    println!("{name} {}", words.join(" "));
}

fn main() -> Result<(), Error> {
    let mut gate = [0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0x0000, 0x8000, 0x4120];
    let mut up = [0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x4040, 0x4040, 0x4040, 0x4040];
    // Angles 0 and about 0.5, 0.25, 0.125, 0.0625.
    let mut cos = [0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f61, 0x3f78, 0x3f7e, 0x3f80];
    let mut sin = [0x0000, 0x0000, 0x0000, 0x0000, 0x3ef5, 0x3e7d, 0x3dff, 0x3d80];
    let mut q: [u16; TOKENS * HEADS * DIM] = std::array::from_fn(|i| 0x3f80 + i as u16);
    let mut k: [u16; TOKENS * DIM] = std::array::from_fn(|i| 0xbf80 + i as u16);
    let mut out = [0; COLS];

    let context = Library::linked()?.host_context(Options::default())?;
    let answers = [
        run_silu_mul(&context, Buffer::of(&mut gate), Buffer::of(&mut up), Buffer::of(&mut out))?,
        run_rope(
            &context,
            Buffer::of(&mut q),
            Buffer::of(&mut k),
            Buffer::of(&mut cos),
            Buffer::of(&mut sin),
        )?,
    ];
    // With the library's own reference, the default, every call is served.
    assert_eq!(answers, [Answer::Served; 2]);
    print("silu_mul", &out[..4]);
    print("rope q, token 1", &q[HEADS * DIM..][..4]);
    print("rope k, token 1", &k[DIM..][..4]);
    Ok(())
}
