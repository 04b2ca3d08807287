//! What reaches the C interface, seen by a stand-in library that records it.
#![cfg(all(feature = "dlopen", unix))]
use bitexact::{
    sys, Answer, Bf16, Certificate, Clamp, Combine, Compute, Context, DType, Device, Error, Host, Library,
    LogLevel, Numerics, Operation, Options, Pairing, Policy, Reference, Rope, RopeReference, Silu, SiluMul,
    Status, Stream, TableWidth, Verdict, Version, View, ViewError, ViewMut,
};
use std::ffi::{c_void, CString};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

/// Builds the stand-in with the given macros.
fn build(name: &str, macros: &[&str]) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-std=c99", "-Wall", "-Wno-unused", "-Werror", "-I"])
        .arg(root.join("../bitexact-sys/include"))
        .args(macros)
        .arg("-o")
        .args([&library, &root.join("tests/mock.c")])
        .status()
        .expect("a C compiler is needed for this test");
    assert!(built.success());
    library
}

/// The stand-in and its questions. It has one state for the process: tests take turns.
struct Mock {
    library: Library,
    handle: *mut c_void,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Mock {
    fn open() -> Mock {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let path = build("mock", &[]);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the file was just built from mock.c.
        let (library, handle) = unsafe {
            (Library::open(&path).unwrap(), sys::loader::dlopen(name.as_ptr(), sys::loader::RTLD_NOW))
        };
        let mock = Mock { library, handle, _turn: turn };
        mock.set_status(0);
        mock
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and a string that ends with a zero.
        let address = unsafe { sys::loader::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null());
        address
    }

    fn ask<T>(&self, name: &str) -> T {
        // SAFETY: the functions of mock.c take nothing and return a T.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> T>(self.symbol(name))() }
    }

    fn set_status(&self, status: i32) {
        let symbol = self.symbol("mock_set_status");
        // SAFETY: the type of that function.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32)>(symbol)(status) }
    }

    fn rope(&self) -> sys::bitexact_rope_params {
        // SAFETY: it points to a static of the stand-in.
        unsafe { *self.ask::<*const sys::bitexact_rope_params>("mock_rope") }
    }

    fn silu_mul(&self) -> sys::bitexact_silu_mul_params {
        // SAFETY: it points to a static of the stand-in.
        unsafe { *self.ask::<*const sys::bitexact_silu_mul_params>("mock_silu_mul") }
    }

    fn device(&self) -> Context<Device> {
        self.library.device_context(0, Options::default()).unwrap()
    }
}

/// A device address that no test may follow.
fn at(address: usize) -> *mut c_void {
    address as *mut c_void
}

fn view<'a>(
    address: usize,
    len: usize,
    dtype: DType,
    offset: usize,
    shape: &[usize],
    strides: &[isize],
) -> View<'a, Device> {
    // SAFETY: the stand-in does not follow pointers.
    unsafe { View::from_raw(at(address), len, dtype, offset, shape, strides) }.unwrap()
}

fn view_mut<'a>(
    address: usize,
    len: usize,
    dtype: DType,
    offset: usize,
    shape: &[usize],
    strides: &[isize],
) -> ViewMut<'a, Device> {
    // SAFETY: the stand-in does not follow pointers.
    unsafe { ViewMut::from_raw(at(address), len, dtype, offset, shape, strides) }.unwrap()
}

fn small_silu_mul<'a>() -> SiluMul<'a, Device> {
    let (shape, strides) = ([2, 4], [4, 1]);
    SiluMul::new(
        view(0x1000, 8, DType::Bf16, 0, &shape, &strides),
        view(0x2000, 8, DType::Bf16, 0, &shape, &strides),
        view_mut(0x3000, 8, DType::Bf16, 0, &shape, &strides),
    )
    .unwrap()
}

fn small_rope<'a>() -> Rope<'a, Device> {
    Rope::new(
        view_mut(0x1000, 48, DType::Bf16, 0, &[1, 3, 4, 4], &[48, 16, 4, 1]),
        view(0x2000, 6, DType::F32, 0, &[3, 2], &[2, 1]),
        view(0x3000, 6, DType::F32, 0, &[3, 2], &[2, 1]),
        TableWidth::Half,
    )
    .unwrap()
}

#[test]
fn stream_values_arrive_unchanged() {
    let mock = Mock::open();
    let context = mock.device();
    let mut call = small_rope();
    let mut gated = small_silu_mul();
    let reference =
        RopeReference { q: view(0x4000, 48, DType::Bf16, 0, &[1, 3, 4, 4], &[48, 16, 4, 1]), k: None };
    // SAFETY: the stand-in does not follow pointers or streams.
    unsafe {
        let any = Stream::from_raw(at(0xdead_beef_0010));
        for (stream, raw) in
            [(Stream::DEFAULT, 0), (Stream::LEGACY, 1), (Stream::PER_THREAD, 2), (any, 0xdead_beef_0010)]
        {
            let seen = || mock.ask::<*mut c_void>("mock_stream") as usize;
            assert_eq!(context.rope(&mut call, stream).unwrap(), Answer::Served);
            assert_eq!(seen(), raw);
            assert_eq!(context.silu_mul(&mut gated, stream).unwrap(), Answer::Served);
            assert_eq!(seen(), raw);
            assert_eq!(context.rope_verify(&call, &reference, stream).unwrap(), Verdict::Accepted);
            assert_eq!(seen(), raw);
            assert_eq!(context.warm_up(None, None, stream).unwrap(), Answer::Served);
            assert_eq!(seen(), raw);
        }
    }
}

#[test]
fn a_host_context_always_gives_a_null_stream() {
    let mock = Mock::open();
    let context = mock.library.host_context(Options::default()).unwrap();
    // SAFETY: it points to a static of the stand-in.
    let options = unsafe { *mock.ask::<*const sys::bitexact_context_options>("mock_options") };
    assert_eq!(options.device, sys::BITEXACT_DEVICE_HOST);
    assert_eq!(context.warm_up(None, None, Stream::PER_THREAD).unwrap(), Answer::Served);
    assert!(mock.ask::<*mut c_void>("mock_stream").is_null());
    assert_eq!(context.info().unwrap().device, None);
}

#[test]
fn every_field_of_a_rope_call_arrives() {
    let mock = Mock::open();
    let context = mock.device();
    let bf16 = DType::Bf16;
    // q and k are cut from one (batch, token, 5 heads, 16) tensor, seen head-major.
    let q = view(0x10_0000, 4000, bf16, 7, &[2, 3, 10, 16], &[800, 16, 80, 1]).transpose(1, 2);
    let q_out = view_mut(0x20_0000, 2000, bf16, 0, &[2, 10, 3, 16], &[480, 48, 16, 1]);
    let k = view(0x10_0000, 4000, bf16, 55, &[2, 10, 2, 16], &[800, 80, 16, 1]);
    let k_out = view_mut(0x30_0000, 640, bf16, 0, &[2, 10, 2, 16], &[320, 32, 16, 1]);
    let cos = view(0x40_0000, 960, DType::F32, 0, &[1, 20, 3, 4], &[0, 48, 16, 4]);
    let sin = view(0x40_0000, 960, DType::F32, 1, &[2, 21, 1, 4], &[0, 45, 99, 4]);
    let positions = view(0x50_0000, 20, DType::I64, 0, &[2, 10], &[10, 1]);
    let mut call = Rope::new((q, q_out), cos, sin, TableWidth::Half)
        .unwrap()
        .with_k((k, k_out))
        .unwrap()
        .with_positions(positions)
        .unwrap()
        .pairings(Pairing::Interleaved, Pairing::Half)
        .combine(Combine::ComplexAlt)
        .compute(Compute::F64)
        .inverse(true);
    // SAFETY: the stand-in does not follow pointers.
    assert_eq!(unsafe { context.rope(&mut call, Stream::LEGACY) }.unwrap(), Answer::Served);

    let p = mock.rope();
    assert_eq!(p.struct_size, 336);
    assert_eq!(p.flags, sys::BITEXACT_ROPE_INVERSE as u32);
    assert_eq!((p.dtype, p.table_dtype, p.compute_dtype), (3, 1, 4));
    assert_eq!((p.combine, p.pairing_in, p.pairing_out), (2, 1, 0));
    assert_eq!((p.batches, p.tokens, p.q_heads, p.k_heads, p.head_dim), (2, 10, 3, 2, 16));
    assert_eq!((p.rotary_dim, p.table_width, p.table_rows), (8, 4, 20));
    assert_eq!(p.q_in as usize, 0x10_0000 + 2 * 7);
    assert_eq!((p.q_in_batch_stride, p.q_in_token_stride, p.q_in_head_stride), (800, 80, 16));
    assert_eq!(p.q_out as usize, 0x20_0000);
    assert_eq!((p.q_out_batch_stride, p.q_out_token_stride, p.q_out_head_stride), (480, 48, 16));
    assert_eq!(p.k_in as usize, 0x10_0000 + 2 * 55);
    assert_eq!((p.k_in_batch_stride, p.k_in_token_stride, p.k_in_head_stride), (800, 80, 16));
    assert_eq!(p.k_out as usize, 0x30_0000);
    assert_eq!((p.k_out_batch_stride, p.k_out_token_stride, p.k_out_head_stride), (320, 32, 16));
    assert_eq!((p.cos as usize, p.sin as usize), (0x40_0000, 0x40_0000 + 4));
    assert_eq!(
        [p.cos_batch_stride, p.cos_token_stride, p.cos_head_stride, p.cos_element_stride],
        [0, 48, 16, 4]
    );
    assert_eq!(
        [p.sin_batch_stride, p.sin_token_stride, p.sin_head_stride, p.sin_element_stride],
        [0, 45, 0, 4]
    );
    assert_eq!((p.positions as usize, p.positions_dtype), (0x50_0000, 6));
    assert_eq!((p.positions_batch_stride, p.positions_token_stride, p.reserved), (10, 1, 0));
}

#[test]
fn every_field_of_a_silu_mul_call_arrives() {
    let mock = Mock::open();
    let context = mock.device();
    let f16 = DType::F16;
    // Both halves of a packed (2, 3, 8) tensor with padded rows, the second half first.
    let gate = view(0x1000, 60, f16, 4, &[2, 3, 4], &[30, 10, 1]);
    let up = view(0x1000, 60, f16, 0, &[2, 3, 4], &[30, 10, 1]);
    let out = view_mut(0x9000, 24, f16, 0, &[2, 3, 4], &[12, 4, 1]);
    let call = SiluMul::new(gate, up, out).unwrap().silu(Silu::Candle).compute(Compute::F32);
    assert_eq!(context.can_use_silu_mul(&call).unwrap(), Answer::Served);
    let p = mock.silu_mul();
    assert_eq!((p.struct_size, p.flags, p.dtype, p.compute_dtype, p.silu, p.reserved), (128, 0, 2, 1, 2, 0));
    assert_eq!((p.clamp, p.limit_bits), (0, 0));
    assert_eq!((p.batches, p.rows, p.cols), (2, 3, 4));
    assert_eq!((p.gate as usize, p.up as usize, p.out as usize), (0x1008, 0x1000, 0x9000));
    assert_eq!((p.gate_batch_stride, p.gate_row_stride), (30, 10));
    assert_eq!((p.up_batch_stride, p.up_row_stride), (30, 10));
    assert_eq!((p.out_batch_stride, p.out_row_stride), (12, 4));

    let call = SiluMul::into_up(gate, view_mut(0x9000, 24, f16, 0, &[2, 3, 4], &[12, 4, 1])).unwrap();
    let call = call.clamp(Clamp::After(16.0));
    assert!(mock.library.check_silu_mul(&call).is_ok());
    assert_eq!((mock.silu_mul().clamp, mock.silu_mul().limit_bits), (2, 0x4180_0000));
    assert_eq!(mock.silu_mul().out, mock.silu_mul().up.cast_mut());
    let row = |address| view(address, 4, f16, 0, &[4], &[1]);
    let call = SiluMul::into_gate(view_mut(0x9000, 4, f16, 0, &[4], &[1]), row(0x1000)).unwrap();
    let call = call.clamp(Clamp::After(16.0));
    assert!(mock.library.check_silu_mul(&call).is_ok());
    assert_eq!((mock.silu_mul().clamp, mock.silu_mul().limit_bits), (2, 0x4180_0000));
    let p = mock.silu_mul();
    assert_eq!((p.batches, p.rows, p.cols, p.out.cast_const()), (1, 1, 4, p.gate));
}

#[test]
fn every_status_becomes_an_answer_or_an_error() {
    let mock = Mock::open();
    let context = mock.device();
    let mut call = small_rope();
    let mut answer = |status| {
        mock.set_status(status);
        // SAFETY: the stand-in does not follow pointers.
        unsafe { context.rope(&mut call, Stream::LEGACY) }
    };
    assert_eq!(answer(0), Ok(Answer::Served));
    assert_eq!(answer(200), Ok(Answer::Unverified));
    assert_eq!(answer(201), Ok(Answer::Declined));
    assert_eq!(answer(202), Ok(Answer::Capturing));
    for code in (1..=17).chain(100..=108) {
        let error = answer(code).unwrap_err();
        assert_eq!(error.status().unwrap().code(), code);
        assert_eq!(Status::from_code(code), error.status());
        let text = format!("mock failed with {code}");
        match &error {
            Error::Unsupported { text: t } => assert_eq!((code, t), (15, &text)),
            Error::Invalid { text: t, .. } => assert!(code < 100 && *t == text),
            Error::Environment { text: t, cuda, .. } => {
                assert!(code >= 100 && *t == text);
                assert_eq!(*cuda, if code == 105 { 700 } else { 0 });
            }
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().starts_with(&text));
    }
    for code in [18, 99, 109, 203, 1000, -1, i32::MIN, i32::MAX] {
        assert_eq!(
            answer(code).unwrap_err(),
            Error::Unknown { code, text: format!("mock failed with {code}") }
        );
    }
}

#[test]
fn a_verify_that_decides_nothing_is_undecided() {
    let mock = Mock::open();
    let context = mock.device();
    let call = small_rope();
    let reference =
        RopeReference { q: view(0x4000, 48, DType::Bf16, 0, &[1, 3, 4, 4], &[48, 16, 4, 1]), k: None };
    // SAFETY: the stand-in does not follow pointers.
    let verdict = |status| unsafe {
        mock.set_status(status);
        context.rope_verify(&call, &reference, Stream::LEGACY)
    };
    assert_eq!(verdict(0), Ok(Verdict::Accepted));
    assert_eq!(verdict(202), Ok(Verdict::Undecided));
    assert_eq!(verdict(17).unwrap_err().status(), Some(Status::WrongMode));
}

#[test]
fn references_of_another_shape_are_refused() {
    let mock = Mock::open();
    let context = mock.device();
    let call = small_rope();
    let smaller =
        RopeReference { q: view(0x4000, 48, DType::Bf16, 0, &[1, 3, 3, 4], &[48, 16, 4, 1]), k: None };
    // SAFETY: refused before the library sees it.
    let error = unsafe { context.rope_verify(&call, &smaller, Stream::LEGACY) }.unwrap_err();
    assert!(matches!(error, Error::View(ViewError::Shape { .. })));
}

#[test]
fn options_info_reports_and_certificates_pass_through() {
    let mock = Mock::open();
    for (policy, code) in [
        (Policy::Verify, 0),
        (Policy::Reference, 1),
        (Policy::Trust, 2),
        (Policy::Audit, 3),
        (Policy::Strict, 4),
    ] {
        let context =
            mock.library.device_context(3, Options { policy, reference: Reference::Caller }).unwrap();
        // SAFETY: it points to a static of the stand-in.
        let options = unsafe { *mock.ask::<*const sys::bitexact_context_options>("mock_options") };
        assert_eq!((options.struct_size, options.device), (24, 3));
        assert_eq!((options.gate_policy, options.reference_mode), (code, 1));
        let info = context.info().unwrap();
        assert_eq!((info.device, info.device_name.as_str()), (Some(3), "mock device"));
        assert_eq!((info.policy, info.reference), (Some(policy), Reference::Caller));
        assert_eq!((info.image, info.position_errors), (None, 5));
    }
    let context = mock.device();
    let reports = context.reports().unwrap();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0].operation, Some(Operation::Rope));
    assert_eq!(reports[0].numerics, Some(Numerics::Combine(Combine::Complex)));
    assert_eq!((reports[1].operation, reports[1].numerics), (None, None));
    assert_eq!((reports[0].verdict, reports[0].kernel.as_str()), (Verdict::Declined, "mock kernel"));
    assert!(reports[0].basis.probe && reports[0].basis.live && !reports[0].basis.certificate);
    let mismatch = reports[0].mismatch.unwrap();
    assert_eq!((mismatch.index, mismatch.expected, mismatch.actual, mismatch.count), (17, 0x3f80, 0x3f81, 3));

    let mut certificate = Certificate::default();
    context.certify(0, 0, 4, &mut certificate).unwrap();
    context.certify(0, 4, 5, &mut certificate).unwrap();
    assert_eq!((certificate.parts_done(), certificate.parts_total()), (9, 9));
}

#[test]
fn contexts_are_destroyed_once_and_log_functions_run() {
    let mock = Mock::open();
    let before: i32 = mock.ask("mock_destroyed");
    let lines = Arc::new(Mutex::new(Vec::new()));
    {
        let mut context = mock.device();
        let kept = Arc::clone(&lines);
        context
            .set_log(Some(move |level, line: &str| kept.lock().unwrap().push((level, line.to_owned()))))
            .unwrap();
        // SAFETY: the stand-in does not follow pointers.
        unsafe {
            let _ = context.rope(&mut small_rope(), Stream::LEGACY).unwrap();
            context.set_log(Some(|_, _: &str| panic!("swallowed"))).unwrap();
            let _ = context.rope(&mut small_rope(), Stream::LEGACY).unwrap();
            context.set_log(None::<fn(LogLevel, &str)>).unwrap();
            let _ = context.rope(&mut small_rope(), Stream::LEGACY).unwrap();
        }
        assert_eq!(mock.ask::<i32>("mock_destroyed"), before);
    }
    assert_eq!(mock.ask::<i32>("mock_destroyed"), before + 1);
    assert_eq!(*lines.lock().unwrap(), [(LogLevel::Warning, "mock line".to_owned())]);
}

#[test]
fn libraries_that_do_not_fit_are_refused() {
    // SAFETY: each file was just built from mock.c, or does not exist.
    unsafe {
        let version = |library: PathBuf| match Library::open(library).unwrap_err() {
            Error::Version { found, wanted } => (found, wanted),
            other => panic!("{other:?}"),
        };
        let (found, wanted) = version(build("mock_old", &["-DMOCK_VERSION=805"]));
        assert_eq!((found, wanted), (Version { major: 0, minor: 8, patch: 5 }, Version::OF_HEADER));
        assert_eq!(version(build("mock_new", &["-DMOCK_VERSION=10000"])).0.to_string(), "1.0.0");
        assert_eq!(version(build("mock_hole", &["-DMOCK_HOLE"])).0, Version::OF_HEADER);
        let error = Library::open(build("mock_no_table", &["-DMOCK_NO_TABLE"])).unwrap_err();
        assert_eq!(error, Error::MissingSymbol { name: "bitexact_get_api" });
        let error = Library::open("/no/such/libbitexact.so").unwrap_err();
        assert!(matches!(&error, Error::Load { path, text } if path.contains("no/such") && !text.is_empty()));
        let error = Library::open("zero\0byte").unwrap_err();
        assert!(matches!(error, Error::Load { .. }));
    }
}

#[test]
fn calls_made_of_unfit_views_are_refused() {
    let values = [Bf16(0); 64];
    let floats = [0f32; 64];
    let mut out = [Bf16(0); 64];
    let b = |shape: &[usize]| View::contiguous(&values, shape).unwrap();
    let mut refused = |gate: View<'_, Host>, up: View<'_, Host>, shape: &[usize]| {
        SiluMul::new(gate, up, ViewMut::contiguous(&mut out, shape).unwrap()).unwrap_err()
    };
    assert!(matches!(refused(b(&[4, 8]), b(&[4, 9]), &[4, 8]), ViewError::Shape { tensor: "up", .. }));
    assert!(matches!(refused(b(&[4, 8]), b(&[4, 8]), &[8, 4]), ViewError::Shape { tensor: "out", .. }));
    let f = View::contiguous(&floats, &[4, 8]).unwrap();
    assert!(matches!(refused(b(&[4, 8]), f, &[4, 8]), ViewError::DType { tensor: "up", .. }));
    assert!(matches!(refused(b(&[1, 1, 4, 8]), b(&[4, 8]), &[4, 8]), ViewError::Rank { .. }));
    let sparse = View::strided(&values, 0, &[4, 8], &[16, 2]).unwrap();
    assert_eq!(refused(sparse, b(&[4, 8]), &[4, 8]), ViewError::InnerStride { tensor: "gate", found: 2 });

    let rope = |cos: &[usize], sin: &[usize], k_heads: usize| {
        let mut out = [Bf16(0); 64];
        let mut k_out = [Bf16(0); 96];
        let q = (b(&[1, 4, 2, 8]), ViewMut::contiguous(&mut out, &[1, 4, 2, 8]).unwrap());
        let k = ViewMut::contiguous(&mut k_out, &[1, 4, k_heads, 8]).unwrap();
        Rope::new(q, b(cos), b(sin), TableWidth::Half).and_then(|call| call.with_k(k)).map(|_| ())
    };
    assert_eq!(rope(&[4, 4], &[5, 4], 3), Ok(()));
    assert_eq!(rope(&[1, 4, 3, 4], &[1, 4, 1, 4], 3), Ok(()));
    assert!(matches!(rope(&[4, 4], &[4, 2], 3), Err(ViewError::Shape { tensor: "sin", .. })));
    assert!(matches!(rope(&[4], &[4], 3), Err(ViewError::Rank { tensor: "cos", .. })));
    assert!(matches!(rope(&[2, 4, 4], &[4, 4], 3), Err(ViewError::Shape { tensor: "cos", .. })));
    assert!(matches!(rope(&[4, 4], &[1, 4, 2, 4], 3), Err(ViewError::Shape { tensor: "sin", .. })));
    assert_eq!(rope(&[4, 4], &[1, 4, 2, 4], 2), Ok(()));
}
