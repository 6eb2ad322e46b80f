//! Batch scripts.

use crate::{NOW, fault, read};
use trainyard_api::JobSpec;
use trainyard_jobfile::{Form, Remark};

fn script(directives: &[&str]) -> String {
    let lines: Vec<String> = directives.iter().map(|line| format!("#SBATCH {line}\n")).collect();
    format!("#!/bin/bash\n{}\nsrun python train.py\n", lines.concat())
}

fn batch(directives: &[&str]) -> (JobSpec, Vec<Remark>) {
    let file = read(Form::Batch, &script(directives)).unwrap_or_else(|fault| panic!("{fault}"));
    let [job] = <[JobSpec; 1]>::try_from(file.jobs).expect("one job");
    (job, file.remarks)
}

#[test]
fn the_usual_directives_become_a_job() {
    let text = "#!/bin/bash\n\
        # a comment\n\
        #SBATCH --job-name=\"my run\"   # with a blank\n\
        #SBATCH -N 2 --gpus-per-node=a100:8\n\
        #SBATCH --ntasks-per-node 8\n\
        #SBATCH -c4\n\
        #SBATCH --mem=512G\n\
        #SBATCH -t 1-12:30:00\n\
        #SBATCH -A vision\n\
        #SBATCH --signal=B:USR1@120\n\
        #SBATCH --array=0-9%4\n\
        #SBATCH --dependency=afterok:12:13,afterok:14\n\
        #SBATCH --begin=now+1hour\n\
        #SBATCH --deadline=2026-05-02T12:00:00\n\
        #SBATCH --chdir=/data --nice=5 --hold\n\
        #SBATCH --export=LR=0.1,MODE=fast\n\
        \n\
        srun python train.py\n";
    let file = read(Form::Batch, text).unwrap_or_else(|fault| panic!("{fault}"));
    let job = &file.jobs[0];
    assert_eq!(file.remarks, []);
    assert_eq!(job.script.as_deref(), Some(text), "what runs is what was submitted");
    assert_eq!((job.name.as_str(), job.argv.as_slice()), ("my run", &["train.sh".to_owned()][..]));
    assert_eq!(
        (job.gpus, job.nodes_max, job.gpu_types.as_slice()),
        (16, 2, &["a100".to_owned()][..])
    );
    assert_eq!((job.cpus_per_gpu, job.memory_mib_per_gpu), (4, 64 * 1024));
    assert_eq!(job.time_limit_seconds, Some(36.5 * 3600.0));
    assert_eq!((job.tenant.as_deref(), job.cwd.as_deref()), (Some("vision"), Some("/data")));
    assert_eq!((job.checkpoint.signal.as_str(), job.checkpoint.grace_seconds), ("USR1", 120.0));
    assert_eq!((job.array.as_deref(), job.after.as_slice()), (Some("0-9%4"), &[12, 13, 14][..]));
    assert_eq!((job.begin, job.deadline_seconds), (Some(NOW + 3600.0), Some(86_400.0)));
    assert_eq!((job.priority, job.hold), (-5, true));
    assert_eq!((job.env["LR"].as_str(), job.env["MODE"].as_str()), ("0.1", "fast"));
}

#[test]
fn gpus_are_counted_as_the_directives_say() {
    for (directives, gpus, nodes_max) in [
        (&["--gpus=4"][..], 4, 0),
        (&["-G h100:4"], 4, 0),
        (&["--gpus 8", "--gpus-per-node 4"], 8, 2),
        (&["--gpus=4", "-N1"], 4, 1),
        (&["--gres=gpu:2"], 2, 1),
        (&["--gres=gpu:a100:2", "-N 3"], 6, 3),
        (&["--gres=gpu"], 1, 1),
        (&["--gres=gpu:a100"], 1, 1),
        (&["-n 4", "--gpus-per-task=1"], 4, 0),
        (&["-N 2", "--ntasks-per-node=4", "--gpus-per-task=1"], 8, 2),
    ] {
        let (job, remarks) = batch(directives);
        assert_eq!((job.gpus, job.nodes_max), (gpus, nodes_max), "{directives:?}");
        assert_eq!(remarks, [], "{directives:?}");
    }
    let (job, remarks) = batch(&["-N 2"]);
    assert_eq!((job.gpus, remarks.len()), (2, 1));
    assert!(remarks[0].text.contains("asks for no GPU"), "{}", remarks[0].text);
    assert_eq!(batch(&["--gpus=2", "--constraint=a100|h100"]).0.gpu_types, ["a100", "h100"]);
    assert_eq!(batch(&["--gpus=2", "--mem-per-gpu=8G"]).0.memory_mib_per_gpu, 8192);
    assert_eq!(batch(&["--gpus=2", "-n8", "--mem-per-cpu=1G"]).0.memory_mib_per_gpu, 4096);
    assert_eq!(batch(&["--gpus=2", "--mem=0"]).0.memory_mib_per_gpu, 0);
}

#[test]
fn times_and_flags_are_read_as_slurm_reads_them() {
    for (text, seconds) in [
        ("30", Some(1800.0)),
        ("1:30", Some(90.0)),
        ("2:00:00", Some(7200.0)),
        ("1-0", Some(86_400.0)),
        ("1-1:30", Some(91_800.0)),
        ("0", None),
        ("UNLIMITED", None),
        ("2h", Some(7200.0)),
        ("1h30m", Some(5400.0)),
    ] {
        let (job, _) = batch(&["--gpus=1", &format!("--time={text}")]);
        assert_eq!(job.time_limit_seconds, seconds, "{text}");
    }
    let (job, _) = batch(&["--gpus=1", "--no-requeue"]);
    assert_eq!((job.preemptible, job.retries), (false, 0));
    let (job, _) = batch(&["--gpus=1", "--signal=SIGTERM"]);
    assert_eq!((job.checkpoint.signal.as_str(), job.checkpoint.grace_seconds), ("TERM", 60.0));
    assert_eq!(batch(&["--gpus=1", "--nice"]).0.priority, -100);
}

#[test]
fn what_has_no_effect_is_named_with_its_line() {
    let (_, remarks) = batch(&["--gpus=1", "-p long", "-o out.txt", "--exclusive", "-q high"]);
    let lines: Vec<u64> = remarks.iter().map(|remark| remark.line).collect();
    assert_eq!(lines, [3, 4, 5, 6]);
    assert!(remarks.iter().all(|remark| !remark.unknown), "{remarks:?}");
    assert!(remarks[1].text.contains("-o") && remarks[1].text.contains("trainyard logs"));
    let (_, remarks) = batch(&["--gpus=1", "--time-limt=3", "--wckey x", "-Z"]);
    assert_eq!(remarks.len(), 3);
    assert!(remarks.iter().all(|remark| remark.unknown), "{remarks:?}");
    assert!(remarks[0].text.contains("`--time-min`") || remarks[0].text.contains("`--time`"));
    let late = format!("{}#SBATCH --gpus=4\n", script(&["--gpus=1"]));
    let file = read(Form::Batch, &late).expect("a script");
    assert_eq!((file.jobs[0].gpus, file.remarks[0].line, file.remarks[0].unknown), (1, 5, true));
    let (_, remarks) = batch(&["--gres=gpu:1,nvme:1", "--export=ALL", "-N 2-4"]);
    assert_eq!(remarks.len(), 3, "{remarks:?}");
    let (job, remarks) = batch(&["--gpus=a100:1", "--constraint=skylake"]);
    assert_eq!((job.gpu_types.as_slice(), remarks.len()), (&["a100".to_owned()][..], 1));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for (directive, parts) in [
        ("--gpus=none", &["`--gpus` cannot be `none`", "a whole number"][..]),
        ("--gpus=0", &["`--gpus`"]),
        ("--gpus", &["`--gpus` is missing", "a value"]),
        ("--gpus=a:b:4", &["`--gpus`", "a100:4"]),
        ("-N 4-2", &["`-N`", "smaller"]),
        ("-t tomorrow", &["`-t` cannot be `tomorrow`", "12:00:00"]),
        ("--signal=KILL", &["`--signal`", "USR1"]),
        ("--signal=USR1@soon", &["`--signal`", "soon"]),
        ("--array=9-0", &["`--array`", "goes down"]),
        ("--dependency=afterany:3", &["`--dependency`", "afterok"]),
        ("-d singleton", &["`-d`", "afterok"]),
        ("--begin=someday", &["`--begin`", "now+2h"]),
        ("--deadline=2020-01-01", &["`--deadline`", "to come"]),
        ("--mem=lots", &["`--mem`", "64G"]),
        ("--requeue=yes", &["`--requeue`", "no value"]),
        ("--export=A-B=3", &["`--export`", "NAME=VALUE"]),
        ("--priority=high", &["`--priority`", "a whole number"]),
        ("--job-name=\"open", &["#SBATCH", "closed"]),
        ("gpus=4", &["#SBATCH", "`gpus=4`", "--gpus=4"]),
    ] {
        let fault = fault(Form::Batch, &script(&["--nodes=1", directive]));
        let message = fault.to_string();
        assert_eq!(fault.line, 3, "{message}");
        for part in parts {
            assert!(message.contains(part), "{directive}: `{part}` is not in: {message}");
        }
    }
    let odd = fault(Form::Batch, &script(&["--gpus=5", "--gpus-per-node=2"]));
    assert!(odd.to_string().contains("a multiple of --gpus-per-node"), "{odd}");
    assert!(fault(Form::Batch, "echo\n").to_string().contains("#!/bin/bash"));
    assert!(fault(Form::Batch, "").to_string().contains("#!/bin/bash"));
    let dos = fault(Form::Batch, "#!/bin/bash\necho\r\n");
    assert_eq!((dos.line, dos.to_string().contains("sed -i")), (2, true));
}
