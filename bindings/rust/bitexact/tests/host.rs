//! The real library on slices, against the contract's formulas written out again here.
#![cfg(feature = "link")]
use std::sync::OnceLock;

use bitexact::{
    Answer, Bf16, Clamp, Combine, Compute, Context, Error, Host, InOut, Library, Options, Pairing, Policy,
    Reference, Rope, RopeReference, Silu, SiluMul, SiluMulReference, Status, TableWidth, Verdict, View,
    ViewMut, F16,
};

fn context() -> Context<Host> {
    Library::linked().unwrap().host_context(Options::default()).unwrap()
}

/// One for many calls: each context checks each kernel once.
fn shared_context() -> &'static Context<Host> {
    static CONTEXT: OnceLock<Context<Host>> = OnceLock::new();
    CONTEXT.get_or_init(context)
}

/// A 16-bit or 32-bit float by its bits: widened exactly, narrowed to nearest even.
trait Float: bitexact::Element + PartialEq + std::fmt::Debug {
    fn widen(self) -> f32;
    fn narrow(value: f32) -> Self;
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
}

impl Float for Bf16 {
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    fn narrow(value: f32) -> Bf16 {
        if value.is_nan() {
            return Bf16(0x7fff);
        }
        let bits = value.to_bits();
        Bf16(((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16)
    }
    fn bits(self) -> u32 {
        u32::from(self.0)
    }
    fn from_bits(bits: u32) -> Bf16 {
        Bf16(bits as u16)
    }
}

impl Float for F16 {
    fn widen(self) -> f32 {
        let (sign, exponent, fraction) = (self.0 >> 15, self.0 >> 10 & 31, self.0 & 1023);
        let magnitude = match exponent {
            0 => f32::from(fraction) / 16_777_216.0,
            31 if fraction == 0 => f32::INFINITY,
            31 => f32::NAN,
            _ => f32::from_bits((u32::from(exponent) + 112) << 23 | u32::from(fraction) << 13),
        };
        if sign == 1 {
            -magnitude
        } else {
            magnitude
        }
    }
    fn narrow(value: f32) -> F16 {
        if value.is_nan() {
            return F16(0x7fff);
        }
        let sign = (value.to_bits() >> 16 & 0x8000) as u16;
        let magnitude = f64::from(value.abs());
        if magnitude >= 65520.0 {
            return F16(sign | 0x7c00);
        }
        // The spacing of results near this magnitude; 2^-24 below the normal range.
        let exponent = if magnitude == 0.0 { -14 } else { magnitude.log2().floor().max(-14.0) as i32 };
        let unit = 2f64.powi(exponent - 10);
        let steps = (magnitude / unit).round_ties_even();
        // Steps carry into the exponent on their own, as the encodings are consecutive.
        F16(sign | (steps as u16 + ((exponent + 14) as u16) * 1024))
    }
    fn bits(self) -> u32 {
        u32::from(self.0)
    }
    fn from_bits(bits: u32) -> F16 {
        F16(bits as u16)
    }
}

impl Float for f32 {
    fn widen(self) -> f32 {
        self
    }
    fn narrow(value: f32) -> f32 {
        if value.is_nan() {
            f32::from_bits(0x7fff_ffff)
        } else {
            value
        }
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }
}

fn assert_bits<T: Float>(actual: &[T], expected: &[T], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let wrong: Vec<usize> = (0..actual.len()).filter(|&i| actual[i].bits() != expected[i].bits()).collect();
    let first =
        wrong.first().map(|&i| format!("{:08x} for {:08x} at {i}", actual[i].bits(), expected[i].bits()));
    assert!(wrong.is_empty(), "{what}: {} differ, first {}", wrong.len(), first.unwrap());
}

/// A fixed sequence of well mixed numbers.
struct Mixer(u64);

impl Mixer {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Mostly ordinary values of both signs, and now and then any bit pattern.
    fn value<T: Float>(&mut self) -> T {
        let z = self.next();
        if z & 15 == 0 {
            return T::from_bits((z >> 32) as u32);
        }
        T::narrow(((z >> 40) as f32 / 8_388_608.0 - 1.0) * 2f32.powi((z >> 4 & 7) as i32 - 4))
    }

    fn values<T: Float>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| self.value()).collect()
    }
}

#[test]
fn narrowing_undoes_widening() {
    for bits in 0..=u16::MAX {
        let nan = |x: f32| x.is_nan();
        if !nan(Bf16(bits).widen()) {
            assert_eq!(Bf16::narrow(Bf16(bits).widen()), Bf16(bits));
        }
        if !nan(F16(bits).widen()) {
            assert_eq!(F16::narrow(F16(bits).widen()), F16(bits));
        }
    }
    assert_eq!(F16::narrow(65519.9), F16(0x7bff));
    assert_eq!(F16::narrow(65520.0), F16(0x7c00));
    assert_eq!(F16::narrow(2f32.powi(-25)), F16(0));
    assert_eq!(F16::narrow(2f32.powi(-25) * 1.001), F16(1));
}

/// `expf` as on CUDA: of all negated 16-bit inputs that show it, it is not the nearest float at three: one above
/// at two, which x * sigmoid(x) in float16 shows, and one below at the third, which sigmoid(x) does.
fn exp(x: f32) -> f32 {
    let above = [0x3bb0_0000, 0x3c18_0000].contains(&x.to_bits());
    let below = x.to_bits() == 0x3c28_0000;
    f32::from_bits(x.exp().to_bits() + u32::from(above) - u32::from(below))
}

fn silu<T: Float>(silu: Silu, g: T) -> T {
    let r = |x: f32| T::narrow(x).widen();
    let g = g.widen();
    T::narrow(match silu {
        Silu::Aten => g / (1.0 + exp(-g)),
        Silu::Sigmoid => g * r(1.0 / (1.0 + exp(-g))),
        Silu::Candle => g / r(1.0 + r(exp(-g))),
        Silu::Glu => 1.0 / (1.0 + exp(-g)),
        _ => unreachable!(),
    })
}

/// Every input of a 16-bit type, each with 16 multipliers.
fn sweep<T: Float>(context: &Context<Host>, kind: Silu) -> Result<(), Error> {
    let gate: Vec<T> = (0..=0xffff).map(T::from_bits).collect();
    let table: Vec<T> = gate.iter().map(|&g| silu(kind, g)).collect();
    let mut mixer = Mixer(1);
    for round in 0..16 {
        let up: Vec<T> = if round == 0 { vec![T::narrow(1.0); 65_536] } else { mixer.values(65_536) };
        let expected: Vec<T> = table.iter().zip(&up).map(|(s, u)| T::narrow(s.widen() * u.widen())).collect();
        let mut out = vec![T::from_bits(0); 65_536];
        let mut call = SiluMul::new(
            View::contiguous(&gate, &[64, 1024])?,
            View::contiguous(&up, &[64, 1024])?,
            ViewMut::contiguous(&mut out, &[64, 1024])?,
        )?
        .silu(kind);
        assert_eq!(context.silu_mul(&mut call)?, Answer::Served);
        assert_bits(&out, &expected, &format!("{kind:?}, multiplier {round}"));
    }
    Ok(())
}

#[test]
fn silu_of_every_16_bit_input_is_the_formula() {
    let context = context();
    for kind in [Silu::Aten, Silu::Sigmoid, Silu::Candle, Silu::Glu] {
        sweep::<Bf16>(&context, kind).unwrap();
        sweep::<F16>(&context, kind).unwrap();
    }
}

/// Gates and multipliers around the limit, which no 16-bit type holds, and far from it.
fn limited<T: Float>(context: &Context<Host>, clamp: Clamp) {
    let limit = T::narrow(0.3).widen();
    let within = |x: f32| if x > limit { limit } else { x };
    let mut mixer = Mixer(2);
    let (mut gate, mut up): (Vec<T>, Vec<T>) = (mixer.values(4096), mixer.values(4096));
    let close = [0.3f32, -0.3, 0.2, 0.31, -0.31, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (i, &x) in close.iter().enumerate() {
        (gate[i], up[i]) = (T::narrow(x), T::narrow(1.0));
        (gate[8 + i], up[8 + i]) = (T::narrow(2.0), T::narrow(x));
    }
    let one = |g: T, u: T| {
        let u = within(u.widen());
        let u = if u < -limit { -limit } else { u };
        let s = match clamp {
            Clamp::Before(_) => silu(Silu::Aten, T::narrow(within(g.widen()))).widen(),
            _ => within(silu(Silu::Aten, g).widen()),
        };
        T::narrow(s * u)
    };
    let expected: Vec<T> = gate.iter().zip(&up).map(|(&g, &u)| one(g, u)).collect();
    let mut out = vec![T::from_bits(0); 4096];
    let mut call = SiluMul::new(
        View::contiguous(&gate, &[4096]).unwrap(),
        View::contiguous(&up, &[4096]).unwrap(),
        ViewMut::contiguous(&mut out, &[4096]).unwrap(),
    )
    .unwrap()
    .clamp(clamp);
    assert_eq!(context.silu_mul(&mut call).unwrap(), Answer::Served);
    assert_bits(&out, &expected, &format!("{clamp:?}"));
}

#[test]
fn limits_are_the_formula() {
    let context = context();
    for clamp in [Clamp::Before(0.3), Clamp::After(0.3)] {
        limited::<Bf16>(&context, clamp);
        limited::<F16>(&context, clamp);
    }
}

#[test]
fn a_limit_must_be_one() {
    let (gate, up, mut out) = ([Bf16(0); 4], [Bf16(0); 4], [Bf16(0); 4]);
    let mut call = SiluMul::new(
        View::contiguous(&gate, &[4]).unwrap(),
        View::contiguous(&up, &[4]).unwrap(),
        ViewMut::contiguous(&mut out, &[4]).unwrap(),
    )
    .unwrap();
    for limit in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        call = call.clamp(Clamp::Before(limit));
        let error = context().silu_mul(&mut call).unwrap_err();
        assert!(error.to_string().contains("limit_bits"), "{error}");
    }
    call = call.clamp(Clamp::None);
    assert_eq!(context().silu_mul(&mut call).unwrap(), Answer::Served);
}

#[test]
fn float32_silu_is_refused_on_the_host() {
    let (gate, up, mut out) = ([1f32; 4], [1f32; 4], [7f32; 4]);
    let mut call = SiluMul::new(
        View::contiguous(&gate, &[4]).unwrap(),
        View::contiguous(&up, &[4]).unwrap(),
        ViewMut::contiguous(&mut out, &[4]).unwrap(),
    )
    .unwrap();
    let error = context().silu_mul(&mut call).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { text } if text.contains("FLOAT32")), "{error}");
    assert_eq!(out, [7.0; 4]);
}

/// The chain of separate operators, one pair at a time.
fn rotate<T: Float, U: Float>(x1: T, x2: T, (c1, s1): (U, U), (c2, s2): (U, U), wide: bool) -> (T, T) {
    let r = |x: f32| if wide { x } else { T::narrow(x).widen() };
    let (x1, x2) = (x1.widen(), x2.widen());
    let o1 = r(r(x1 * c1.widen()) - r(x2 * s1.widen()));
    let o2 = r(r(x2 * c2.widen()) + r(x1 * s2.widen()));
    (T::narrow(o1), T::narrow(o2))
}

fn rope_case<T: Float, U: Float>(seed: u64, heads: usize, pairing: Pairing, width: TableWidth, tail: usize) {
    let (batches, tokens, rotary) = (2, 5, 12);
    let head_dim = rotary + tail;
    let mut mixer = Mixer(seed);
    // Head-major memory, seen token-major.
    let memory = [batches, heads, tokens, head_dim];
    let q: Vec<T> = mixer.values(memory.iter().product());
    let entries = if width == TableWidth::Half { rotary / 2 } else { rotary };
    let cos: Vec<U> = mixer.values(tokens * entries);
    let sin: Vec<U> = mixer.values(tokens * entries);
    let wide = size_of::<U>() > size_of::<T>();

    let mut expected = q.clone();
    for (row, head) in expected.chunks_mut(head_dim).enumerate() {
        let token = row % tokens;
        for j in 0..rotary / 2 {
            let (a, b) = match pairing {
                Pairing::Half => (j, j + rotary / 2),
                Pairing::Interleaved => (2 * j, 2 * j + 1),
            };
            let entry = |e| (cos[token * entries + e], sin[token * entries + e]);
            let (first, second) =
                if width == TableWidth::Half { (entry(j), entry(j)) } else { (entry(a), entry(b)) };
            (head[a], head[b]) = rotate(head[a], head[b], first, second, wide);
        }
    }

    let context = shared_context();
    let what = format!("seed {seed}, {heads} heads, {pairing:?}, {width:?}, tail {tail}");
    for in_place in [true, false] {
        let mut out = if in_place { q.clone() } else { vec![T::from_bits(0); q.len()] };
        let output = ViewMut::contiguous(&mut out, &memory).unwrap().transpose(1, 2);
        let q: InOut<'_, Host> = match in_place {
            true => output.into(),
            false => (View::contiguous(&q, &memory).unwrap().transpose(1, 2), output).into(),
        };
        let table = [tokens, entries];
        let mut call = Rope::new(
            q,
            View::contiguous(&cos, &table).unwrap(),
            View::contiguous(&sin, &table).unwrap(),
            width,
        )
        .unwrap()
        .pairing(pairing);
        assert_eq!(context.rope(&mut call).unwrap(), Answer::Served);
        assert_bits(&out, &expected, &what);
    }
}

#[test]
fn rope_is_the_chain_of_separate_operators() {
    for seed in 0..24 {
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            for width in [TableWidth::Half, TableWidth::Full] {
                for (heads, tail) in [(1, 0), (3, 5)] {
                    rope_case::<Bf16, Bf16>(seed, heads, pairing, width, tail);
                    rope_case::<Bf16, f32>(seed, heads, pairing, width, tail);
                    rope_case::<F16, F16>(seed, heads, pairing, width, tail);
                    rope_case::<f32, f32>(seed, heads, pairing, width, tail);
                }
            }
        }
    }
}

#[test]
fn inverse_rotation_negates_sin() {
    let mut mixer = Mixer(9);
    let (q, cos): (Vec<Bf16>, Vec<Bf16>) = (mixer.values(24), mixer.values(12));
    let sin: Vec<Bf16> = (0..12).map(|i| Bf16::narrow(i as f32 / 7.0 - 0.8)).collect();
    let negated: Vec<Bf16> = sin.iter().map(|s| Bf16(s.0 ^ 0x8000)).collect();
    let run = |sin: &[Bf16], inverse| {
        let mut out = q.clone();
        let q = ViewMut::contiguous(&mut out, &[1, 3, 1, 8]).unwrap();
        let table = |t| View::contiguous(t, &[3, 4]).unwrap();
        let mut call = Rope::new(q, table(&cos), table(sin), TableWidth::Half).unwrap().inverse(inverse);
        assert_eq!(context().rope(&mut call).unwrap(), Answer::Served);
        out
    };
    assert_bits(&run(&sin, true), &run(&negated, false), "inverse");
    assert_ne!(run(&sin, true), run(&sin, false));
}

#[test]
fn positions_choose_rows_and_bad_ones_are_counted() {
    let context = context();
    let (q, cos, sin) = ([Bf16(0x3f80); 12], [Bf16(0x3f80); 8], [Bf16(0); 8]);
    let mut out = [Bf16(0); 12];
    let positions = [3i64, -1, 4];
    let call = Rope::new(
        (View::contiguous(&q, &[1, 3, 1, 4]).unwrap(), ViewMut::contiguous(&mut out, &[1, 3, 1, 4]).unwrap()),
        View::contiguous(&cos, &[4, 2]).unwrap(),
        View::contiguous(&sin, &[4, 2]).unwrap(),
        TableWidth::Half,
    );
    let mut call = call.unwrap().with_positions(View::contiguous(&positions, &[3]).unwrap()).unwrap();
    assert_eq!(context.rope(&mut call).unwrap(), Answer::Served);
    assert_eq!(out[..4], [Bf16(0x3f80); 4]);
    assert_eq!(out[4..], [Bf16(0x7fff); 8]);
    assert_eq!(context.info().unwrap().position_errors, 2);
}

#[test]
fn overlapping_outputs_are_refused_by_the_library() {
    let mut memory = vec![Bf16(0); 64];
    let base = memory.as_mut_ptr().cast();
    let library = Library::linked().unwrap();
    let refused = |offset: usize| {
        // SAFETY: nothing is run; the views only describe `memory`.
        let (gate, up, out) = unsafe {
            (
                View::<Host>::from_raw(base, 64, bitexact::DType::Bf16, 0, &[2, 8], &[8, 1]).unwrap(),
                View::from_raw(base, 64, bitexact::DType::Bf16, 16, &[2, 8], &[8, 1]).unwrap(),
                ViewMut::from_raw(base, 64, bitexact::DType::Bf16, offset, &[2, 8], &[8, 1]).unwrap(),
            )
        };
        library.check_silu_mul(&SiluMul::new(gate, up, out).unwrap()).err().and_then(|e| e.status())
    };
    assert_eq!(refused(32), None);
    assert_eq!(refused(16), None);
    assert_eq!(refused(0), None);
    assert_eq!(refused(1), Some(Status::Overlap));
    assert_eq!(refused(31), Some(Status::Overlap));
}

fn caller_context() -> Context<Host> {
    let options = Options { policy: Policy::Verify, reference: Reference::Caller };
    Library::linked().unwrap().host_context(options).unwrap()
}

/// Runs the gate's protocol once; `wrong` is added to the bits of the reference.
fn protocol(context: &Context<Host>, wrong: u16) -> (Answer, Verdict, Answer) {
    let (gate, up) = ([Bf16(0x3f80); 64], [Bf16(0x4000); 64]);
    let mut out = [Bf16(0); 64];
    let reference = [Bf16(0x3fbb + wrong); 64];
    let shape = [4, 16];
    let mut call = SiluMul::new(
        View::contiguous(&gate, &shape).unwrap(),
        View::contiguous(&up, &shape).unwrap(),
        ViewMut::contiguous(&mut out, &shape).unwrap(),
    )
    .unwrap();
    let first = context.silu_mul(&mut call).unwrap();
    let reference = SiluMulReference { out: View::contiguous(&reference, &shape).unwrap() };
    let verdict = context.silu_mul_verify(&call, &reference).unwrap();
    let second = context.silu_mul(&mut call).unwrap();
    let expected = if second == Answer::Served { Bf16(0x3fbb) } else { Bf16(0) };
    assert_eq!(out, [expected; 64]);
    (first, verdict, second)
}

#[test]
fn the_callers_result_decides() {
    let mut context = caller_context();
    assert_eq!(protocol(&context, 0), (Answer::Unverified, Verdict::Accepted, Answer::Served));
    context.reset().unwrap();
    assert_eq!(protocol(&context, 1), (Answer::Unverified, Verdict::Declined, Answer::Declined));
    let report = context.reports().unwrap().into_iter().find(|report| report.mismatch.is_some()).unwrap();
    let mismatch = report.mismatch.unwrap();
    assert_eq!((mismatch.expected, mismatch.actual, mismatch.index, mismatch.count), (0x3fbc, 0x3fbb, 0, 64));
}

#[test]
fn verify_does_not_fit_a_built_in_reference() {
    let context = context();
    let (mut q, table) = ([Bf16(0); 8], [Bf16(0); 4]);
    let reference = q;
    let call = Rope::new(
        ViewMut::contiguous(&mut q, &[1, 1, 1, 8]).unwrap(),
        View::contiguous(&table, &[1, 4]).unwrap(),
        View::contiguous(&table, &[1, 4]).unwrap(),
        TableWidth::Half,
    )
    .unwrap();
    let reference = RopeReference { q: View::contiguous(&reference, &[1, 1, 1, 8]).unwrap(), k: None };
    let error = context.rope_verify(&call, &reference).unwrap_err();
    assert_eq!(error.status(), Some(Status::WrongMode));
}

#[test]
fn arguments_are_checked_without_a_context() {
    let library = Library::linked().unwrap();
    let (q, table) = ([Bf16(0); 8], [Bf16(0); 4]);
    let mut out = [Bf16(0); 8];
    let mut rope = |shape: &[usize]| {
        Rope::new(
            (
                View::contiguous(&q, &[1, 1, 1, 8]).unwrap(),
                ViewMut::contiguous(&mut out, &[1, 1, 1, 8]).unwrap(),
            ),
            View::contiguous(&table, shape).unwrap(),
            View::contiguous(&table, shape).unwrap(),
            TableWidth::Half,
        )
        .unwrap()
        .params()
        .rotary_dim
    };
    assert_eq!((rope(&[1, 4]), rope(&[2, 2])), (8, 4));
    let call = Rope::new(
        (View::contiguous(&q, &[1, 2, 1, 4]).unwrap(), ViewMut::contiguous(&mut out, &[1, 2, 1, 4]).unwrap()),
        View::contiguous(&table, &[1, 2]).unwrap(),
        View::contiguous(&table, &[1, 2]).unwrap(),
        TableWidth::Half,
    )
    .unwrap();
    let error = library.check_rope(&call).unwrap_err();
    assert!(
        matches!(&error, Error::Invalid { status: Status::InvalidShape, text } if text.contains("table_rows"))
    );
    let call = call.sum_from_zero(true).combine(Combine::Complex).compute(Compute::F32);
    assert!(matches!(library.check_rope(&call).unwrap_err(), Error::Unsupported { .. }));
}

#[test]
fn a_machine_without_a_device_says_so_and_the_host_works() {
    let library = Library::linked().unwrap();
    assert!(library.build_info().contains(&library.version().to_string()), "{}", library.build_info());
    assert!(!library.status_text(12345).is_empty());
    let no_such_ordinal = library.device_context(u32::MAX, Options::default()).unwrap_err();
    let status = no_such_ordinal.status().unwrap();
    assert!(
        matches!(
            status,
            Status::NoDriver
                | Status::NoDevice
                | Status::NoCudaBackend
                | Status::InvalidDevice
                | Status::DriverTooOld
        ),
        "{no_such_ordinal}"
    );
    let info = context().info().unwrap();
    assert_eq!((info.device, info.architecture, info.driver_version), (None, 0, 0));
}

#[test]
fn one_context_serves_many_threads() {
    let context = context();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let context = &context;
            scope.spawn(move || {
                let gate: Vec<Bf16> = Mixer(seed).values(4096);
                let mut out = vec![Bf16(0); 4096];
                let mut call = SiluMul::new(
                    View::contiguous(&gate, &[4096]).unwrap(),
                    View::contiguous(&gate, &[4096]).unwrap(),
                    ViewMut::contiguous(&mut out, &[4096]).unwrap(),
                )
                .unwrap();
                assert_eq!(context.silu_mul(&mut call).unwrap(), Answer::Served);
                let expected: Vec<Bf16> =
                    gate.iter().map(|&g| Bf16::narrow(silu(Silu::Aten, g).widen() * g.widen())).collect();
                assert_bits(&out, &expected, "thread");
            });
        }
    });
}
