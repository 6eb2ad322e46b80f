//! Speeds on more nodes than a profile has.

/// The speed on so many nodes of a job that runs at `one` on one node and at `two` on two: each further node adds to the
/// time of an iteration what the second one did.
///
/// An exchange of gradients that grows by as much with each node, after an iteration and not beside it: the form of
/// Pollux (OSDI 2021), equations 8 to 11 without overlap, by nodes instead of GPUs. A second node that costs nothing
/// leaves the speed as it is. The page of the policy says in what range it holds.
///
/// ```
/// use trainyard_policies::chronus::speeds::extrapolated;
/// // 1 s on one node and 1.25 s on two are 1.75 s on four.
/// assert_eq!(extrapolated(1.0, 0.8, 4), 1.0 / 1.75);
/// ```
pub fn extrapolated(one: f64, two: f64, nodes: usize) -> f64 {
    let more = nodes.saturating_sub(1) as f64 * (1.0 / two - 1.0 / one).max(0.0);
    1.0 / (1.0 / one + more)
}
