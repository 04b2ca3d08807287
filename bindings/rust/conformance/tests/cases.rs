//! The cases of `tests/conformance/cases.json` (what they mean stands in `case.h` beside it), through the raw
//! bindings and through the checked crate, which between them must not disagree on any.
use std::ffi::{c_void, CStr};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use bitexact::{
    Clamp, Combine, Compute, Context, DType, Host, InOut, Library, Options, Pairing, Rope, Silu, SiluMul,
    TableWidth, View, ViewMut,
};
use bitexact_sys as sys;
use serde_json::Value;

/// The memory of a case, aligned as the cases want it.
#[derive(Clone, PartialEq)]
#[repr(C, align(64))]
#[derive(Copy)]
struct Line([u8; 64]);

#[derive(Clone)]
struct Memory {
    lines: Vec<Line>,
}

impl Memory {
    fn of(case: &Value) -> Memory {
        let size = case["bytes"].as_u64().unwrap() as usize;
        let mut state = case["seed"].as_u64().unwrap();
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            bytes.extend((z ^ z >> 31).to_le_bytes());
        }
        for write in case["write"].as_array().unwrap() {
            let (at, data) = (write[0].as_u64().unwrap() as usize, from_hex(write[1].as_str().unwrap()));
            bytes[at..at + data.len()].copy_from_slice(&data);
        }
        let lines = bytes.chunks(64).map(|chunk| Line(chunk.try_into().unwrap())).collect();
        Memory { lines }
    }
    fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.0).collect()
    }
    fn base(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/conformance/cases.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 200);
    cases
}

/// What is wrong with the memory and the count after a call that was served.
fn judge(case: &Value, after: &[u8], position_errors: i64) -> Result<(), String> {
    if let Some(expected) = case["digest"].as_str() {
        let found = digest(after);
        if found != expected {
            return Err(format!("wrong bytes: digest {found}"));
        }
    }
    if position_errors != case["position_errors"].as_i64().unwrap_or(0) {
        return Err(format!("position_errors is {position_errors}"));
    }
    for key in ["bits", "first"] {
        for (tensor, text) in case[key].as_object().into_iter().flatten() {
            let (at, data) =
                (case["pointers"][tensor].as_u64().unwrap() as usize, from_hex(text.as_str().unwrap()));
            if after[at..at + data.len()] != data[..] {
                return Err(format!("{tensor} does not start with {text}"));
            }
        }
    }
    Ok(())
}

fn report(through: &str, results: Vec<(String, Result<(), String>)>) {
    let total = results.len();
    let failed: Vec<String> =
        results.into_iter().filter_map(|(name, r)| r.err().map(|text| format!("{name}: {text}"))).collect();
    println!("{total} cases through {through}");
    assert!(failed.is_empty(), "{} of {total} failed:\n{}", failed.len(), failed.join("\n"));
}

// -------------------------------------------------------------------------------- raw bindings --

/// Sets every field that the case names; false for a name that is none of them.
macro_rules! fill {
    ($params:ident, $case:ident, $base:ident, numbers: $($number:ident)*, pointers: $($pointer:ident)*) => {{
        let mut used = 0;
        $(if let Some(value) = $case["params"].get(stringify!($number)) {
            $params.$number = value.as_i64().unwrap().try_into().unwrap();
            used += 1;
        })*
        $(if let Some(value) = $case["pointers"].get(stringify!($pointer)) {
            $params.$pointer = $base.wrapping_add(value.as_u64().unwrap() as usize).cast();
            used += 1;
        }
        if let Some(value) = $case["addresses"].get(stringify!($pointer)) {
            $params.$pointer = value.as_u64().unwrap() as usize as *mut c_void;
            used += 1;
        })*
        let named = |key: &str| $case[key].as_object().map_or(0, |fields| fields.len());
        assert_eq!(used, named("params") + named("pointers") + named("addresses"), "an unknown field");
        if let Some(size) = $case["struct_size"].as_u64() {
            $params.struct_size = size as u32;
        }
    }};
}

/// A struct at the start of the greatest block that a case may claim.
#[repr(C, align(8))]
struct Block<T> {
    params: T,
    rest: [u8; 8192],
}

fn initial<T>(init: unsafe extern "C" fn(*mut T)) -> T {
    let mut value = MaybeUninit::zeroed();
    // SAFETY: the function writes the whole struct, of which any bytes are a value.
    unsafe {
        init(value.as_mut_ptr());
        value.assume_init()
    }
}

fn run_raw(case: &Value) -> Result<(), String> {
    let mut memory = Memory::of(case);
    let (before, base) = (memory.bytes(), memory.base());
    let mut silu_mul = Block { params: initial(sys::bitexact_silu_mul_params_init), rest: [0; 8192] };
    let mut rope = Block { params: initial(sys::bitexact_rope_params_init), rest: [0; 8192] };
    let is_rope = case["operation"] == "rope";
    if is_rope {
        let p = &mut rope.params;
        fill!(p, case, base, numbers: flags dtype table_dtype compute_dtype combine pairing_in pairing_out
            batches tokens q_heads k_heads head_dim rotary_dim table_width table_rows
            q_in_batch_stride q_in_token_stride q_in_head_stride q_out_batch_stride q_out_token_stride
            q_out_head_stride k_in_batch_stride k_in_token_stride k_in_head_stride k_out_batch_stride
            k_out_token_stride k_out_head_stride cos_batch_stride cos_token_stride cos_head_stride
            cos_element_stride sin_batch_stride sin_token_stride sin_head_stride sin_element_stride
            positions_batch_stride positions_token_stride positions_dtype reserved,
            pointers: q_in q_out k_in k_out cos sin positions);
    } else {
        let p = &mut silu_mul.params;
        fill!(p, case, base, numbers: flags dtype compute_dtype silu reserved batches rows cols
            gate_batch_stride gate_row_stride up_batch_stride up_row_stride out_batch_stride out_row_stride
            clamp limit_bits,
            pointers: gate up out);
    }
    let expected = case["status"].as_i64().unwrap() as i32;
    let checked = case["check"].as_i64().map_or(expected, |status| status as i32);
    // SAFETY: the blocks are as long as any struct_size in the cases that is accepted; the library judges
    // pointers here and does not follow them.
    let alone = unsafe {
        if is_rope {
            sys::bitexact_fused_rope_can_use(null_mut(), &rope.params)
        } else {
            sys::bitexact_fused_silu_mul_can_use(null_mut(), &silu_mul.params)
        }
    };
    if alone != checked {
        return Err(format!("can_use gave {alone}"));
    }
    if case["addresses"].is_object() {
        return Ok(());
    }
    let mut options = initial(sys::bitexact_context_options_init);
    options.device = sys::BITEXACT_DEVICE_HOST;
    let mut context = null_mut();
    let mut info = initial(sys::bitexact_context_info_init);
    // SAFETY: what the cases point at lies in `memory`, which lives; refused ones are not followed.
    let (status, text, told) = unsafe {
        assert_eq!(sys::bitexact_context_create(&options, &mut context), 0);
        let status = if is_rope {
            sys::bitexact_fused_rope(context, &rope.params, null_mut())
        } else {
            sys::bitexact_fused_silu_mul(context, &silu_mul.params, null_mut())
        };
        let text = CStr::from_ptr(sys::bitexact_last_error()).to_string_lossy().into_owned();
        let told = sys::bitexact_context_get_info(context, &mut info);
        sys::bitexact_context_destroy(context);
        (status, text, told)
    };
    let after = memory.bytes();
    if status != expected || told != 0 {
        return Err(format!("the call gave {status}: {text}"));
    }
    if status == 0 {
        return judge(case, &after, info.position_errors);
    }
    (after == before).then_some(()).ok_or_else(|| "a refused call wrote".into())
}

#[test]
fn through_the_raw_bindings() {
    report("the raw bindings", cases().iter().map(|c| (c["name"].to_string(), run_raw(c))).collect());
}

// ------------------------------------------------------------------------------- checked crate --

fn dtype(code: i64) -> DType {
    match code {
        1 => DType::F32,
        2 => DType::F16,
        3 => DType::Bf16,
        4 => DType::F64,
        5 => DType::I32,
        6 => DType::I64,
        _ => panic!("dtype {code}"),
    }
}

/// One case as views of its memory.
struct Call<'a> {
    case: &'a Value,
    base: *mut u8,
}

impl Call<'_> {
    fn number(&self, name: &str) -> i64 {
        self.case["params"][name].as_i64().unwrap_or(0)
    }
    fn place(&self, tensor: &str, dtype: DType) -> (usize, usize) {
        let bytes = self.case["bytes"].as_u64().unwrap() as usize;
        let at = self.case["pointers"][tensor].as_u64().unwrap() as usize;
        assert_eq!(at % dtype.size(), 0);
        (bytes / dtype.size(), at / dtype.size())
    }
    fn view(
        &self,
        tensor: &str,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<View<'static, Host>, bitexact::ViewError> {
        let (len, offset) = self.place(tensor, dtype);
        // SAFETY: the memory outlives the call that the view is for.
        unsafe { View::from_raw(self.base.cast(), len, dtype, offset, shape, strides) }
    }
    fn view_mut(
        &self,
        tensor: &str,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<ViewMut<'static, Host>, bitexact::ViewError> {
        let (len, offset) = self.place(tensor, dtype);
        // SAFETY: as above; overlaps are what some cases try, and are refused before anything is written.
        unsafe { ViewMut::from_raw(self.base.cast(), len, dtype, offset, shape, strides) }
    }

    fn silu_mul(&self) -> Result<SiluMul<'static, Host>, bitexact::Error> {
        let kind = dtype(self.number("dtype"));
        let shape = ["batches", "rows", "cols"].map(|n| self.number(n) as usize);
        let strides = |tensor: &str| {
            ["batch", "row"].map(|axis| self.number(&format!("{tensor}_{axis}_stride")) as isize)
        };
        let view = |tensor: &str| {
            let [batch, row] = strides(tensor);
            self.view(tensor, kind, &shape, &[batch, row, 1])
        };
        let view_mut = |tensor: &str| {
            let [batch, row] = strides(tensor);
            self.view_mut(tensor, kind, &shape, &[batch, row, 1])
        };
        let same = |tensor: &str| {
            self.case["pointers"]["out"] == self.case["pointers"][tensor] && strides("out") == strides(tensor)
        };
        let call = if same("gate") {
            SiluMul::into_gate(view_mut("gate")?, view("up")?)?
        } else if same("up") {
            SiluMul::into_up(view("gate")?, view_mut("up")?)?
        } else {
            SiluMul::new(view("gate")?, view("up")?, view_mut("out")?)?
        };
        let silu = [Silu::Aten, Silu::Sigmoid, Silu::Candle, Silu::Glu][self.number("silu") as usize];
        let limit = f32::from_bits(self.number("limit_bits") as u32);
        let clamp = [Clamp::None, Clamp::Before(limit), Clamp::After(limit)][self.number("clamp") as usize];
        Ok(call.silu(silu).clamp(clamp).compute(self.compute()))
    }

    fn compute(&self) -> Compute {
        match self.number("compute_dtype") {
            0 => Compute::Eager,
            1 => Compute::F32,
            _ => Compute::F64,
        }
    }

    fn heads(&self, x: &str) -> Result<InOut<'static, Host>, bitexact::ViewError> {
        let kind = dtype(self.number("dtype"));
        let heads = self.number(&format!("{x}_heads"));
        let shape = [self.number("batches"), self.number("tokens"), heads, self.number("head_dim")]
            .map(|n| n as usize);
        let strides = |side: &str| {
            let [b, t, h] = ["batch", "token", "head"]
                .map(|axis| self.number(&format!("{x}_{side}_{axis}_stride")) as isize);
            [b, t, h, 1]
        };
        let (input, output) = (format!("{x}_in"), format!("{x}_out"));
        if self.case["pointers"][&input] == self.case["pointers"][&output] && strides("in") == strides("out")
        {
            return Ok(self.view_mut(&output, kind, &shape, &strides("out"))?.into());
        }
        let view = self.view(&input, kind, &shape, &strides("in"))?;
        Ok((view, self.view_mut(&output, kind, &shape, &strides("out"))?).into())
    }

    fn table(&self, x: &str) -> Result<View<'static, Host>, bitexact::ViewError> {
        let code = self.number("table_dtype");
        let kind = dtype(if code == 0 { self.number("dtype") } else { code });
        let [b, t, h, e] = ["batch", "token", "head", "element"]
            .map(|axis| self.number(&format!("{x}_{axis}_stride")) as isize);
        let heads = self.number("q_heads").max(self.number("k_heads"));
        // A stride of 0 broadcasts, as an axis of one element does.
        let size = |stride: isize, n: i64| if stride == 0 { 1 } else { n as usize };
        let shape = [
            size(b, self.number("batches")),
            self.number("table_rows") as usize,
            size(h, heads),
            self.number("table_width") as usize,
        ];
        self.view(x, kind, &shape, &[b, t, h, e])
    }

    fn rope(&self) -> Result<Rope<'static, Host>, bitexact::Error> {
        let full = self.number("table_width") == self.number("rotary_dim");
        let width = if full { TableWidth::Full } else { TableWidth::Half };
        let mut call = Rope::new(self.heads("q")?, self.table("cos")?, self.table("sin")?, width)?;
        if self.number("k_heads") > 0 {
            call = call.with_k(self.heads("k")?)?;
        }
        if self.case["pointers"]["positions"].is_u64() {
            let shape = [self.number("batches"), self.number("tokens")].map(|n| n as usize);
            let strides = ["batch", "token"].map(|a| self.number(&format!("positions_{a}_stride")) as isize);
            let kind = dtype(self.number("positions_dtype"));
            call = call.with_positions(self.view("positions", kind, &shape, &strides)?)?;
        }
        let pairing = |name: &str| [Pairing::Half, Pairing::Interleaved][self.number(name) as usize];
        let combines = [
            Combine::Separate,
            Combine::Complex,
            Combine::ComplexAlt,
            Combine::AddcmulCos,
            Combine::AddcmulX1,
        ];
        let flags = self.number("flags");
        Ok(call
            .pairings(pairing("pairing_in"), pairing("pairing_out"))
            .combine(combines[self.number("combine") as usize])
            .compute(self.compute())
            .inverse(flags & 1 != 0)
            .sum_from_zero(flags & 2 != 0))
    }

    fn run(&self, context: &Context<Host>) -> Result<(), bitexact::Error> {
        let answer = if self.case["operation"] == "rope" {
            context.rope(&mut self.rope()?)?
        } else {
            context.silu_mul(&mut self.silu_mul()?)?
        };
        assert_eq!(answer, bitexact::Answer::Served);
        Ok(())
    }
}

fn run_checked(case: &Value) -> Result<(), String> {
    let mut memory = Memory::of(case);
    let before = memory.bytes();
    let context = Library::linked().unwrap().host_context(Options::default()).unwrap();
    let call = Call { case, base: memory.base() };
    let result = call.run(&context);
    let after = memory.bytes();
    match (result, case["status"].as_i64().unwrap()) {
        (Ok(()), 0) => judge(case, &after, context.info().unwrap().position_errors),
        (Err(_), status) if status != 0 => {
            (after == before).then_some(()).ok_or_else(|| "a refused call wrote".into())
        }
        (Ok(()), status) => Err(format!("served, though the status should be {status}")),
        (Err(error), _) => Err(error.to_string()),
    }
}

#[test]
fn through_the_checked_crate() {
    let all = cases();
    // Structs, addresses and constants that the crate's types do not let one say.
    let sayable: Vec<&Value> = all.iter().filter(|c| c["raw"] != true).collect();
    assert!(sayable.len() > 150, "only {} cases can be said", sayable.len());
    report("the checked crate", sayable.iter().map(|c| (c["name"].to_string(), run_checked(c))).collect());
}
