//! GPUs in Slurm's words: `gpu:a100:8(S:0-1)`, `gres:gpu:2`, `gres/gpu:v100=4`, `gpu:k80:1(IDX:0)`.

/// GPUs by type; the type is empty where none is told.
pub fn gpus(list: &str) -> Vec<(String, u32)> {
    let mut gpus: Vec<(String, u32)> = Vec::new();
    for item in items(list) {
        let Some((kind, count)) = gpu(item) else { continue };
        match gpus.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => gpus.push((kind, count)),
        }
    }
    // Where GPUs are counted both in all and by type, the types are the same GPUs again.
    if gpus.len() > 1 && list.contains('=') {
        gpus.retain(|(kind, _)| !kind.is_empty());
    }
    gpus
}

/// How many GPUs a list names in all.
pub fn count(list: &str) -> u32 {
    gpus(list).iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// The items of a list, cut at commas outside of brackets: `gpu:8(IDX:0-3,5)` is one.
fn items(list: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut begin, mut depth) = (0, 0_u32);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                items.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[begin..]);
    items
}

/// The type and the count of one item, if it speaks of GPUs.
fn gpu(item: &str) -> Option<(String, u32)> {
    let item = item.trim();
    let item = item.split('(').next().unwrap_or(item);
    let item = item.strip_prefix("gres").map_or(item, |rest| rest.trim_start_matches([':', '/']));
    let rest = item.strip_prefix("gpu")?;
    let mut words = rest.split([':', '=']);
    // `gpumem:4` is no GPU.
    if !words.next()?.is_empty() {
        return None;
    }
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "no_consume").collect();
    match words.as_slice() {
        [] => Some((String::new(), 1)),
        [one] => Some(match number(one) {
            Some(count) => (String::new(), count),
            None => (one.to_lowercase(), 1),
        }),
        [kind, count, ..] => Some((kind.to_lowercase(), number(count)?)),
    }
}

fn number(word: &str) -> Option<u32> {
    let digits = word.trim_end_matches(['K', 'k', 'M']);
    let scale = if word.ends_with('M') {
        1 << 20
    } else if digits != word {
        1 << 10
    } else {
        1
    };
    digits.parse::<u32>().ok().map(|number| number.saturating_mul(scale))
}

#[cfg(test)]
mod tests {
    use super::{count, gpus};

    #[test]
    fn gpus_are_counted_by_type() {
        let told = |list: &str| {
            let all: Vec<String> =
                gpus(list).iter().map(|(kind, count)| format!("{kind}={count}")).collect();
            all.join(" ")
        };
        assert_eq!(told("gpu:a100:8(S:0-1)"), "a100=8");
        assert_eq!(told("gpu:v100:2(IDX:0,3)"), "v100=2");
        assert_eq!(told("gpu:v100:4,gpu:k80:2(S:1),craynetwork:4"), "v100=4 k80=2");
        assert_eq!(told("gres:gpu:2"), "=2");
        assert_eq!(told("gres/gpu:a100:2"), "a100=2");
        assert_eq!(told("gres/gpu:a100=2"), "a100=2");
        assert_eq!(told("cpu=8,mem=32G,node=1,gres/gpu=4,gres/gpu:a100=4"), "a100=4");
        assert_eq!(told("cpu=8,gres/gpu=4"), "=4");
        assert_eq!(told("gpu"), "=1");
        assert_eq!(told("gpu:A100"), "a100=1");
        // MIG slices, as gres.conf or AutoDetect=nvml names them.
        assert_eq!(told("gpu:1g.5gb:7(S:0)"), "1g.5gb=7");
        assert_eq!(
            told("gpu:a100_3g.20gb:1(S:0),gpu:a100_1g.5gb:4(S:0)"),
            "a100_3g.20gb=1 a100_1g.5gb=4"
        );
        assert_eq!(told("gpu:nvidia_h200_1g.18gb+me:1(IDX:0)"), "nvidia_h200_1g.18gb+me=1");
        assert_eq!(told("gres/gpu=5,gres/gpu:1g.5gb=4,gres/gpu:a100=1"), "1g.5gb=4 a100=1");
        assert_eq!(told("gpumem:16G,mps:400,(null)"), "");
        assert_eq!(count("gpu:v100:4,gpu:k80:2"), 6);
    }
}
