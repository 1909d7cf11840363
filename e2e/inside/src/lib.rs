//! Fixtures that run parts of the product in the process of the test: the engine with a served
//! cache and a real Envoy, the ACME engine with the test CA, the functions that are fuzzed.

pub mod answers;
pub mod fuzz;
pub mod resources;
pub mod responders;
pub mod rig;
pub mod served;
pub mod world;
