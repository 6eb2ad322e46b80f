//! Every format against every sort of bad input: a message with line and column, or a row that is counted as dropped.

use std::io::{self, Read};
use trainyard_workload::ReadError;
use trainyard_workload::import::{FORMATS, Format, ImportContext, Imported, PIECE_MAX, import};

/// A text that stands once in a sample, what it becomes with `#` for the number, and the column.
type Number = (&'static str, &'static str, &'static str);

/// A good text of one format, and where its numbers stand.
struct Sample {
    format: &'static str,
    /// With at least two jobs, each in a line of its own.
    text: &'static str,
    /// What separates columns; `None` for JSON.
    separator: Option<char>,
    /// Whether the first line names the columns.
    is_headed: bool,
    numbers: &'static [Number],
}

const fn table(format: &'static str, text: &'static str, numbers: &'static [Number]) -> Sample {
    Sample { format, text, separator: Some(','), is_headed: true, numbers }
}

const SAMPLES: &[Sample] = &[
    table(
        "csv",
        "id,submit_s,gpus,duration_s,tenant\na,0,1,71,x\nb,9,2,60,y\n",
        &[("71", "#", "duration_s"), ("9", "#", "submit_s"), ("2", "#", "gpus")],
    ),
    Sample {
        format: "jsonl",
        text: "{\"trainyard_trace\":1}\n{\"id\":\"a\",\"submit_s\":0,\"gpus\":4,\"duration_s\":71}\n\
               {\"id\":\"b\",\"submit_s\":9,\"gpus\":2,\"duration_s\":60}\n",
        separator: None,
        is_headed: false,
        numbers: &[("71", "#", "duration_s"), ("9", "#", "submit_s"), ("2", "#", "gpus")],
    },
    table(
        "muri",
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,\
         resource_time_0,resource_time_1,resource_time_2,priority\n\
         a,1,0,50,vgg16,16,5000,0,107,117,68,0,0\nb,2,9000,77,vgg16,16,5000,0,191,114,72,40,0\n",
        &[("77", "#", "iterations"), ("9000", "#", "submit_time"), ("191", "#", "iteration_time")],
    ),
    table(
        "salus",
        "workload,duration_s,peak_mem_mib,iterations\nvgg11_25_1min,50,3709.6,565\n\
         vgg16_100_10min,71,9000,77\n",
        &[("71", "#", "duration_s"), ("9000", "#", "peak_mem_mib"), ("77", "#", "iterations")],
    ),
    table(
        "chronus",
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,\
         expect_value_list,best_effort,job_type\n\
         a,vc,1,10,5,vgg16,6,14,159-189,10-8,0,soft\nb,vc,2,13,5,vgg16,77,14,150,12,0,strict\n",
        &[("77", "#", "duration"), ("13", "#", "submit_time"), ("2,13", "#,13", "num_gpu")],
    ),
    table(
        "elasticflow",
        "job_id,num_gpu,submit_time,iteration,model_name,batch_size,duration,interval,ddl\n\
         a,1,0,50,vgg16,64,500,0,4000\nb,2,9,55,bert,64,77,0,5000\n",
        &[("77", "#", "duration"), ("9", "#", "submit_time")],
    ),
    table(
        "tiresias",
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n\
         a,1,0,50,vgg16,500,0\nb,2,9,55,resnet50,77,0\n",
        &[("77", "#", "duration"), ("9", "#", "submit_time"), ("2", "#", "num_gpu")],
    ),
    table(
        "pollux",
        "name,time,application,num_replicas,batch_size\na,0,cifar10,1,512\nb,9,bert,2,64\n",
        &[("9", "#", "time"), ("2,6", "#,6", "num_replicas")],
    ),
    table(
        "openb",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
         scheduled_time\na,1,1,1,1000,,LS,Running,0,50,0\nb,1,1,2,1000,,LS,Running,9,77,10\n",
        &[("77", "#", "deletion_time"), ("9", "#", "creation_time"), ("2", "#", "num_gpu")],
    ),
    table(
        "acme",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue\n\
         a,u,1,1,8,x,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:01:00+08:00,2023-03-01 00:02:00+08:00,60,60\n\
         b,u,1,2,8,x,COMPLETED,2023-03-01 00:00:09+08:00,2023-03-01 00:01:00+08:00,2023-03-01 00:02:17+08:00,77,51\n",
        &[("77", "#", "duration"), ("2,8", "#,8", "gpu_num")],
    ),
    table(
        "helios",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
         a,u,v,1,8,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,60\n\
         b,u,v,2,8,1,COMPLETED,2020-04-01 00:00:09,2020-04-01 00:01:00,2020-04-01 00:02:17,77,51\n",
        &[("77", "#", "duration"), ("2,8", "#,8", "gpu_num")],
    ),
    table(
        "pai2020",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n\
         a,worker,1.0,Terminated,10.0,70.0,600.0,29.0,100.0,MISC\n\
         b,worker,3.0,Terminated,19.0,96.0,600.0,29.0,50.0,T4\n",
        &[("96.0", "#", "end_time"), ("19.0", "#", "start_time"), ("50.0", "#", "plan_gpu")],
    ),
    Sample {
        format: "shockwave",
        text: "LM (batch size 10)\tc\td\t--steps\t1\t94911\t1\tgns\t1\t-1\t1000\t0\n\
               LM (batch size 10)\tc\td\t--steps\t1\t189822\t1\tstatic\t1\t-1\t2000\t9\n",
        separator: Some('\t'),
        is_headed: false,
        numbers: &[
            ("189822", "#", "total_steps"),
            ("9\n", "#\n", "arrival"),
            ("2000", "#", "duration"),
        ],
    },
    Sample {
        format: "gavel",
        text: "LM (batch size 10)\tc\td\t--steps\t1\t94911\t1\t1\t-1\t0\n\
               LM (batch size 10)\tc\td\t--steps\t1\t77\t1\t1\t-1\t9\n",
        separator: Some('\t'),
        is_headed: false,
        numbers: &[("77", "#", "total_steps"), ("\t9\n", "\t#\n", "arrival")],
    },
    Sample {
        format: "sacct",
        text: "JobIDRaw|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES\n\
               1|lab|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:11:00|600|gres/gpu=1\n\
               2|lab|COMPLETED|2024-05-01T10:00:30|2024-05-01T10:01:00|2024-05-01T10:02:17|77|gres/gpu=2\n",
        separator: Some('|'),
        is_headed: true,
        numbers: &[("77", "#", "ElapsedRaw"), ("gpu=2", "gpu=#", "AllocTRES")],
    },
    Sample {
        format: "sacct-json",
        text: "{\"meta\":{},\"jobs\":[\n\
               {\"job_id\":1,\"state\":{\"current\":[\"COMPLETED\"]},\"time\":{\"submission\":1714557600,\"start\":1714557660,\"end\":1714558260,\"elapsed\":600},\"tres\":{\"allocated\":[{\"type\":\"gres\",\"name\":\"gpu\",\"count\":1}]}},\n\
               {\"job_id\":2,\"state\":{\"current\":[\"COMPLETED\"]},\"time\":{\"submission\":1714557609,\"start\":1714557660,\"end\":1714557737,\"elapsed\":77},\"tres\":{\"allocated\":[{\"type\":\"gres\",\"name\":\"gpu\",\"count\":2}]}}\n]}\n",
        separator: None,
        is_headed: false,
        numbers: &[
            ("\"elapsed\":77", "\"elapsed\":#", "elapsed"),
            ("1714557609", "#", "submission"),
        ],
    },
    Sample {
        format: "trainyard-live",
        text: "{\"schema_version\":1,\"jobs\":[\n\
               {\"id\":1,\"name\":\"a\",\"tenant\":\"t\",\"state\":\"finished\",\"gpus\":1,\"submitted\":1714557600.5,\"ended\":1714557700.5,\"ran_seconds\":60.25,\"priority\":0},\n\
               {\"id\":2,\"name\":\"b\",\"tenant\":\"t\",\"state\":\"failed\",\"gpus\":2,\"submitted\":1714557609,\"ended\":1714557700.5,\"ran_seconds\":77,\"priority\":3}\n]}\n",
        separator: None,
        is_headed: false,
        numbers: &[
            ("\"ran_seconds\":77", "\"ran_seconds\":#", "ran_seconds"),
            ("\"gpus\":2", "\"gpus\":#", "gpus"),
            ("1714557609", "#", "submitted"),
        ],
    },
    Sample {
        format: "kubernetes",
        text: "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n\
               {\"kind\":\"Job\",\"metadata\":{\"name\":\"a\",\"creationTimestamp\":\"2024-05-01T10:00:00Z\"},\"spec\":{\"parallelism\":1,\"template\":{\"spec\":{\"containers\":[{\"resources\":{\"limits\":{\"nvidia.com/gpu\":1}}}]}}},\"status\":{\"startTime\":\"2024-05-01T10:01:00Z\",\"completionTime\":\"2024-05-01T10:02:00Z\"}},\n\
               {\"kind\":\"Job\",\"metadata\":{\"name\":\"b\",\"creationTimestamp\":\"2024-05-01T10:00:09Z\"},\"spec\":{\"parallelism\":77,\"template\":{\"spec\":{\"containers\":[{\"resources\":{\"limits\":{\"nvidia.com/gpu\":2}}}]}}},\"status\":{\"startTime\":\"2024-05-01T10:01:00Z\",\"completionTime\":\"2024-05-01T10:02:00Z\"}}\n]}\n",
        separator: None,
        is_headed: false,
        numbers: &[("77", "#", "parallelism"), ("gpu\":2", "gpu\":#", "nvidia.com/gpu")],
    },
    Sample {
        format: "philly",
        text: "[\n{\"status\":\"Pass\",\"vc\":\"v\",\"jobid\":\"a\",\"submitted_time\":\"2017-10-09 07:00:00\",\"attempts\":[{\"start_time\":\"2017-10-09 07:01:00\",\"end_time\":\"2017-10-09 07:02:00\",\"detail\":[{\"ip\":\"m1\",\"gpus\":[\"g0\"]}]}]},\n\
               {\"status\":\"Pass\",\"vc\":\"v\",\"jobid\":\"b\",\"submitted_time\":\"2017-10-09 07:00:09\",\"attempts\":[{\"start_time\":\"2017-10-09 07:01:00\",\"end_time\":\"2017-10-09 07:02:17\",\"detail\":[{\"ip\":\"m1\",\"gpus\":[\"g0\"]}]}]}\n]\n",
        separator: None,
        is_headed: false,
        numbers: &[
            ("2017-10-09 07:00:09", "#", "submitted_time"),
            ("2017-10-09 07:02:17", "#", "end_time"),
        ],
    },
    Sample {
        format: "swf",
        text: "1 0 5 100 4 -1 -1 4 200 -1 1 3 2 -1 1 -1 -1 -1\n2 9 5 77 4 -1 -1 4 200 -1 1 3 2 -1 1 -1 -1 -1\n",
        separator: Some(' '),
        is_headed: false,
        numbers: &[(" 77 ", " # ", "run"), (" 9 ", " # ", "submit")],
    },
];

impl Sample {
    fn format(&self) -> &'static Format {
        Format::named(self.format).expect("a format of the table")
    }

    fn import(&self, text: impl Read) -> Result<Imported, ReadError> {
        let reader = io::BufReader::new(text);
        import(self.format(), reader, ImportContext::new("t", None))
    }

    fn read(&self, text: &str) -> Result<Imported, String> {
        self.import(text.as_bytes()).map_err(|error| error.to_string())
    }

    fn good(&self) -> Imported {
        self.read(self.text).unwrap_or_else(|error| panic!("{}: {error}", self.format))
    }

    /// The text with one number replaced.
    fn with_number(&self, (mark, template, _): &Number, value: &str) -> String {
        assert_eq!(self.text.matches(mark).count(), 1, "{}: `{mark}` stands once", self.format);
        self.text.replacen(mark, &template.replacen('#', value, 1), 1)
    }

    /// The lines of the two jobs, and what stands before and after them.
    fn rows(&self) -> (String, [String; 2], String) {
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines.len() - usize::from(lines.last().is_some_and(|last| last.starts_with(']')));
        let text =
            |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let plain = |at: usize| lines[at].trim_end_matches(',').to_owned();
        (text(&lines[..end - 2]), [plain(end - 2), plain(end - 1)], text(&lines[end..]))
    }

    /// A text with these rows in place of its own.
    fn with_rows(&self, first: &str, second: &str) -> String {
        let (before, _, after) = self.rows();
        // Elements of a JSON list need their comma.
        let comma = if after.is_empty() { "" } else { "," };
        format!("{before}{first}{comma}\n{second}\n{after}")
    }
}

/// Each job as id, submission, GPUs and work.
fn jobs(imported: &Imported) -> Vec<String> {
    let workload = &imported.workload;
    let shown = workload.jobs.iter().map(|one| {
        let seconds = one.job.submitted.as_secs_f64();
        format!("{} {seconds} {} {}", workload.label(one.job.id), one.job.want.gpus, one.work.0)
    });
    shown.collect()
}

#[test]
fn every_format_has_a_sample_that_is_read_and_recognised() {
    for format in FORMATS {
        let sample = SAMPLES.iter().find(|sample| sample.format == format.name);
        let sample = sample.unwrap_or_else(|| panic!("{} has no sample", format.name));
        assert_eq!(jobs(&sample.good()).len(), 2, "{}", format.name);
        let found = trainyard_workload::import::detect(sample.text.as_bytes());
        assert_eq!(found.map(|found| found.name), Some(format.name));
    }
}

#[test]
fn a_number_that_is_none_is_refused_with_line_and_column_or_its_row_is_dropped() {
    for sample in SAMPLES {
        for number in sample.numbers {
            let column = number.2;
            for value in ["nan", "inf", "-5", "1e300", "99999999999999999999", "x7"] {
                let text = sample.with_number(number, value);
                let what = format!("{}: `{column}` is `{value}`", sample.format);
                match sample.read(&text) {
                    Ok(imported) => {
                        let report = &imported.report;
                        assert_eq!(report.kept + report.dropped_rows(), report.rows, "{what}");
                        // `nan` means not stated; other columns may say the same.
                        let is_known = value == "nan" && jobs(&imported) == jobs(&sample.good());
                        assert!(report.kept == 1 || is_known, "{what}: {:?}", jobs(&imported));
                    }
                    Err(message) => {
                        assert!(message.contains("line "), "{what}: {message}");
                        let is_named = message.contains(&format!("`{column}`"))
                            || message.contains(&format!(".{column}`"))
                            || (sample.separator.is_none() && message.contains("JSON"));
                        assert!(is_named, "{what}: {message}");
                        assert!(message.contains("expected"), "{what}: {message}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_with_another_number_of_columns_is_refused_with_its_line() {
    for sample in SAMPLES {
        let Some(separator) = sample.separator else { continue };
        let lines: Vec<&str> = sample.text.lines().collect();
        let last = lines.len();
        let (short, _) = lines[last - 1].rsplit_once(separator).expect("columns");
        for row in [short.to_owned(), format!("{}{separator}1", lines[last - 1])] {
            let text = format!("{}\n{row}\n", lines[..last - 1].join("\n"));
            let message = sample.read(&text).expect_err(sample.format);
            let is_said = message.contains(&format!("line {last}")) && message.contains("fields");
            assert!(is_said, "{}: {message}", sample.format);
        }
    }
}

#[test]
fn columns_in_another_order_change_nothing() {
    for sample in SAMPLES.iter().filter(|sample| sample.is_headed) {
        let separator = sample.separator.expect("a header has columns");
        let reversed = |line: &str| {
            let columns: Vec<&str> = line.split(separator).rev().collect();
            columns.join(&separator.to_string())
        };
        let text: String = sample.text.lines().map(|line| reversed(line) + "\n").collect();
        let found = sample.read(&text).unwrap_or_else(|error| panic!("{}: {error}", sample.format));
        assert_eq!(jobs(&found), jobs(&sample.good()), "{}", sample.format);
    }
}

#[test]
fn mixed_line_ends_change_nothing() {
    for sample in SAMPLES {
        let mut text = String::new();
        for (index, line) in sample.text.lines().enumerate() {
            text += line;
            text += if index % 2 == 0 { "\r\n" } else { "\n" };
        }
        let found = sample.read(&text).unwrap_or_else(|error| panic!("{}: {error}", sample.format));
        assert_eq!(jobs(&found), jobs(&sample.good()), "{}", sample.format);
    }
}

#[test]
fn rows_out_of_order_are_put_in_order() {
    for sample in SAMPLES {
        let (_, [first, second], _) = sample.rows();
        let text = sample.with_rows(&second, &first);
        let found = sample.read(&text).unwrap_or_else(|error| panic!("{}: {error}", sample.format));
        let submitted: Vec<u64> =
            found.workload.jobs.iter().map(|one| one.job.submitted.0).collect();
        assert!(submitted.is_sorted() && submitted.len() == 2, "{}: {submitted:?}", sample.format);
        let works = |imported: &Imported| {
            let mut works: Vec<f64> = imported.workload.jobs.iter().map(|one| one.work.0).collect();
            works.sort_by(f64::total_cmp);
            works
        };
        assert_eq!(works(&found), works(&sample.good()), "{}", sample.format);
    }
}

#[test]
fn a_second_row_of_the_same_id_is_refused_or_counted() {
    for sample in SAMPLES {
        // Lines of these are jobs of their own, whatever they say: ids are the numbers of lines.
        if matches!(sample.format, "gavel" | "shockwave") {
            continue;
        }
        let (_, [first, _], _) = sample.rows();
        match sample.read(&sample.with_rows(&first, &first)) {
            Ok(imported) => {
                let dropped = &imported.report.dropped;
                assert_eq!((imported.report.kept, dropped.len()), (1, 1), "{}", sample.format);
                assert!(dropped[0].what.contains("same id"), "{}: {dropped:?}", sample.format);
            }
            Err(message) => {
                let is_said = message.contains("line ") && message.contains("`id`");
                assert!(is_said, "{}: {message}", sample.format);
            }
        }
    }
}

#[test]
fn a_text_cut_anywhere_gives_fewer_rows_or_a_fault_with_its_line() {
    for sample in SAMPLES {
        for cut in (0..sample.text.len()).filter(|at| sample.text.is_char_boundary(*at)) {
            let what = format!("{} cut at {cut}", sample.format);
            match sample.read(&sample.text[..cut]) {
                Ok(imported) => {
                    let is_json = sample.separator.is_none() && sample.format != "jsonl";
                    // A list that is not closed is cut off, whatever was read of it.
                    let closed = sample.text[..cut].trim_end().ends_with([']', '}']);
                    assert!(!is_json || closed, "{what}");
                    assert!(imported.workload.jobs.len() <= 2, "{what}");
                }
                Err(message) => {
                    let is_said = message.contains("line ") || message.contains("empty");
                    assert!(is_said, "{what}: {message}");
                }
            }
        }
    }
}

#[test]
fn an_empty_text_says_so() {
    for sample in SAMPLES {
        let message = sample.read("").expect_err(sample.format);
        assert!(message.contains("empty"), "{}: {message}", sample.format);
    }
}

/// A text that goes on with one byte for a gigabyte, and counts what was taken of it.
struct Endless<'a> {
    begin: &'a [u8],
    byte: u8,
    taken: u64,
}

impl Read for Endless<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match self.begin {
            [] if self.taken > 1 << 30 => 0,
            [] => {
                out.fill(self.byte);
                out.len()
            }
            begin => begin.len().min(out.len()),
        };
        if !self.begin.is_empty() {
            out[..count].copy_from_slice(&self.begin[..count]);
            self.begin = &self.begin[count..];
        }
        self.taken += count as u64;
        Ok(count)
    }
}

#[test]
fn a_gigabyte_in_one_line_is_refused_after_a_few_megabytes() {
    for sample in SAMPLES {
        let text = sample.text;
        // In the middle of the last job.
        let middle = text.trim_end().len() - 8;
        for byte in *b"x7[" {
            let mut endless = Endless { begin: &text.as_bytes()[..middle], byte, taken: 0 };
            let message = sample.import(&mut endless).expect_err(sample.format).to_string();
            let limit = 2 * PIECE_MAX as u64;
            assert!(endless.taken <= limit, "{}: took {} bytes", sample.format, endless.taken);
            assert!(message.contains("line "), "{}: {message}", sample.format);
        }
    }
}
