//! What ran as the chain, and why.
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use bitexact::{Answer, GateReport};
use candle_core::{Device, Result};

/// Why a call was not served by the fused kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The gate's answer; `Unverified` is followed by a comparison.
    Gate(Answer),
    /// Everything else, in words.
    Other(String),
}

impl From<bitexact::Error> for Refusal {
    fn from(error: bitexact::Error) -> Refusal {
        Refusal::Other(error.to_string())
    }
}

impl From<bitexact::ViewError> for Refusal {
    fn from(error: bitexact::ViewError) -> Refusal {
        Refusal::Other(error.to_string())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Gate(Answer::Served) => f.write_str("served"),
            Refusal::Gate(Answer::Unverified) => {
                f.write_str("first use of the kernel: compared with the chain")
            }
            Refusal::Gate(Answer::Declined) => {
                f.write_str("the kernel differs from the chain: see reports()")
            }
            Refusal::Gate(Answer::Capturing) => {
                f.write_str("first use of the kernel during a stream capture")
            }
            Refusal::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refusal {}

/// Calls of one operation that ran as candle's chain for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Name of the function.
    pub operation: &'static str,
    /// Why.
    pub reason: String,
    /// How often since the process began.
    pub calls: u64,
}

type Counts = HashMap<(&'static str, String), u64>;

static COUNTS: Mutex<Option<Counts>> = Mutex::new(None);

/// Reasons name sizes; beyond this number they are counted together.
const MOST_REASONS: usize = 256;

pub fn count(operation: &'static str, refusal: &Refusal) {
    let mut counts = COUNTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let counts = counts.get_or_insert_with(HashMap::new);
    let mut key = (operation, refusal.to_string());
    if counts.len() >= MOST_REASONS && !counts.contains_key(&key) {
        key.1 = "other reasons".to_owned();
    }
    *counts.entry(key).or_default() += 1;
}

/// What ran as the chain so far, most frequent first, the first use of each kernel included.
pub fn fallbacks() -> Vec<Fallback> {
    let counts = COUNTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let entries = counts.iter().flatten();
    let mut all: Vec<Fallback> = entries
        .map(|((operation, reason), &calls)| Fallback { operation, reason: reason.clone(), calls })
        .collect();
    all.sort_by(|a, b| {
        b.calls.cmp(&a.calls).then_with(|| (a.operation, &a.reason).cmp(&(b.operation, &b.reason)))
    });
    all
}

/// The gate's reports for a device, one for each kernel in the library.
///
/// # Errors
/// If libbitexact cannot be used there.
pub fn reports(device: &Device) -> Result<Vec<GateReport>> {
    match device {
        Device::Cpu => crate::host::context().and_then(|context| Ok(context.reports()?)),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => crate::cuda::context(device).and_then(|context| Ok(context.reports()?)),
        other => Err(Refusal::Other(format!("no kernels for {:?}", other.location()))),
    }
    .map_err(candle_core::Error::wrap)
}
