//! Only tests: see tests/cases.rs.
