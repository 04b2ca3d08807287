//! On a CUDA device: slices and views of cudarc against the host backend, byte by byte.
//!
//! ```text
//! cargo test --test gpu -- --ignored
//! ```
use std::sync::Arc;

use bitexact::{
    Answer, Bf16, Context, Device, Error, Host, Library, Options, Pairing, Reference, TableWidth, Verdict,
    ViewError,
};
use bitexact_cudarc::{rope, rope_verify, silu_mul, silu_mul_verify, Rotated, Tables, Tensor, TensorMut};
use cudarc::driver::{CudaContext, CudaStream};
use half::bf16;

fn mixed(seed: u64, count: usize) -> Vec<u16> {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u16
        })
        .collect()
}

fn numbers(bits: &[u16]) -> Vec<bf16> {
    bits.iter().copied().map(bf16::from_bits).collect()
}

fn bits(stream: &Arc<CudaStream>, slice: &cudarc::driver::CudaSlice<bf16>) -> Vec<u16> {
    stream.clone_dtoh(slice).unwrap().into_iter().map(bf16::to_bits).collect()
}

fn device(reference: Reference) -> Context<Device> {
    let options = Options { reference, ..Options::default() };
    Library::linked().unwrap().device_context(0, options).expect("this test needs a CUDA device")
}

fn host() -> Context<Host> {
    Library::linked().unwrap().host_context(Options::default()).unwrap()
}

const ROWS: usize = 300;
const COLS: usize = 250;

/// The product of the halves of each row of `packed`.
fn expected_swiglu(packed: &[u16]) -> Vec<u16> {
    let values: Vec<Bf16> = packed.iter().copied().map(Bf16).collect();
    let mut out = vec![Bf16(0); ROWS * COLS];
    let half =
        |offset| bitexact::View::strided(&values, offset, &[ROWS, COLS], &[2 * COLS as isize, 1]).unwrap();
    let output = bitexact::ViewMut::contiguous(&mut out, &[ROWS, COLS]).unwrap();
    let mut call = bitexact::SiluMul::new(half(0), half(COLS), output).unwrap();
    assert_eq!(host().silu_mul(&mut call).unwrap(), Answer::Served);
    out.into_iter().map(|value| value.0).collect()
}

#[test]
#[ignore = "needs a CUDA device"]
fn halves_of_one_slice_on_two_streams() {
    let cuda = CudaContext::new(0).unwrap();
    let (first, second) = (cuda.new_stream().unwrap(), cuda.new_stream().unwrap());
    let context = device(Reference::Builtin);
    for seed in 0..4 {
        let packed_bits = mixed(seed, ROWS * 2 * COLS);
        let expected = expected_swiglu(&packed_bits);
        // Written on one stream, used on another and read on the first: the guards order them.
        let packed = first.clone_htod(&numbers(&packed_bits)).unwrap();
        let mut out = first.alloc_zeros::<bf16>(ROWS * COLS).unwrap();
        let strides = [2 * COLS as isize, 1];
        let answer = silu_mul(
            &context,
            &second,
            Tensor::strided(&packed, 0, &[ROWS, COLS], &strides),
            Tensor::strided(&packed, COLS, &[ROWS, COLS], &strides),
            TensorMut::contiguous(&mut out, &[ROWS, COLS]),
            |call| call,
        );
        assert_eq!(answer.unwrap(), Answer::Served);
        assert!(bits(&first, &out) == expected, "seed {seed}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_runtimes_own_result_decides() {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let context = device(Reference::Caller);
    let packed_bits = mixed(7, ROWS * 2 * COLS);
    let packed = stream.clone_htod(&numbers(&packed_bits)).unwrap();
    let reference = stream.clone_htod(&numbers(&expected_swiglu(&packed_bits))).unwrap();
    let mut out = stream.alloc_zeros::<bf16>(ROWS * COLS).unwrap();
    let half = |offset| Tensor::strided(&packed, offset, &[ROWS, COLS], &[2 * COLS as isize, 1]);
    let shape = [ROWS, COLS];
    let answer =
        silu_mul(&context, &stream, half(0), half(COLS), TensorMut::contiguous(&mut out, &shape), |call| {
            call
        });
    assert_eq!(answer.unwrap(), Answer::Unverified);
    let reference = Tensor::contiguous(&reference, &shape);
    let out_of = TensorMut::contiguous(&mut out, &shape);
    let verdict = silu_mul_verify(&context, &stream, half(0), half(COLS), out_of, reference, |call| call);
    assert_eq!(verdict.unwrap(), Verdict::Accepted);
    let answer =
        silu_mul(&context, &stream, half(0), half(COLS), TensorMut::contiguous(&mut out, &shape), |call| {
            call
        });
    assert_eq!(answer.unwrap(), Answer::Served);
    assert!(bits(&stream, &out) == expected_swiglu(&packed_bits));
}

#[test]
#[ignore = "needs a CUDA device"]
fn q_in_place_and_k_into_a_view_rotate_as_on_the_host() {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let context = device(Reference::Builtin);
    let (q_shape, k_shape, table) = ([1, 40, 6, 64], [1, 40, 2, 64], [100, 32]);
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let (q_bits, k_bits) = (mixed(1, count(&q_shape)), mixed(2, count(&k_shape)));
    let (cos_bits, sin_bits) = (mixed(3, count(&table)), mixed(4, count(&table)));
    let positions: Vec<i64> = (0..40).map(|t| (t * 37) % 100).collect();

    let host_values = |bits: &[u16]| bits.iter().copied().map(Bf16).collect::<Vec<_>>();
    let (mut q_expected, k_in) = (host_values(&q_bits), host_values(&k_bits));
    let (cos_host, sin_host) = (host_values(&cos_bits), host_values(&sin_bits));
    let mut k_expected = vec![Bf16(0); k_in.len()];
    let mut call = bitexact::Rope::new(
        bitexact::ViewMut::contiguous(&mut q_expected, &q_shape).unwrap(),
        bitexact::View::contiguous(&cos_host, &table).unwrap(),
        bitexact::View::contiguous(&sin_host, &table).unwrap(),
        TableWidth::Half,
    )
    .unwrap()
    .with_k((
        bitexact::View::contiguous(&k_in, &k_shape).unwrap(),
        bitexact::ViewMut::contiguous(&mut k_expected, &k_shape).unwrap(),
    ))
    .unwrap()
    .with_positions(bitexact::View::contiguous(&positions, &[40]).unwrap())
    .unwrap()
    .pairing(Pairing::Interleaved);
    assert_eq!(host().rope(&mut call).unwrap(), Answer::Served);

    let upload = |bits: &[u16]| stream.clone_htod(&numbers(bits)).unwrap();
    let (mut q, k, cos, sin) = (upload(&q_bits), upload(&k_bits), upload(&cos_bits), upload(&sin_bits));
    let positions = stream.clone_htod(&positions).unwrap();
    let mut k_out = stream.alloc_zeros::<bf16>(k_bits.len() + 5).unwrap();
    {
        let mut part = k_out.slice_mut(5..);
        let answer = rope(
            &context,
            &stream,
            Rotated::InPlace(TensorMut::contiguous(&mut q, &q_shape)),
            Some(Rotated::Into(Tensor::contiguous(&k, &k_shape), TensorMut::contiguous(&mut part, &k_shape))),
            Tables {
                cos: Tensor::contiguous(&cos, &table),
                sin: Tensor::contiguous(&sin, &table),
                width: TableWidth::Half,
                positions: Some(Tensor::contiguous(&positions, &[40])),
            },
            |call| call.pairing(Pairing::Interleaved),
        );
        assert_eq!(answer.unwrap(), Answer::Served);
    }
    let same = |device: &[u16], host: &[Bf16]| device.iter().zip(host).all(|(a, b)| *a == b.0);
    assert!(same(&bits(&stream, &q), &q_expected));
    let k_result = bits(&stream, &k_out);
    assert!(same(&k_result[5..], &k_expected) && k_result[..5] == [0; 5]);

    // The gate's protocol does not fit a built-in reference, and says so.
    let answer = rope_verify(
        &context,
        &stream,
        Rotated::InPlace(TensorMut::contiguous(&mut q, &q_shape)),
        None,
        Tables {
            cos: Tensor::contiguous(&cos, &table),
            sin: Tensor::contiguous(&sin, &table),
            width: TableWidth::Half,
            positions: None,
        },
        Tensor::contiguous(&k_out, &q_shape),
        None,
        |call| call,
    );
    assert!(matches!(answer, Err(Error::View(ViewError::OutOfBounds { .. }))), "{answer:?}");
}
