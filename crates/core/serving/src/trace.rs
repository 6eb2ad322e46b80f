//! Readers of request traces: our own form, and the public forms of Azure, row by row.
//!
//! A reader holds one row at a time beside the requests that it has made, so a file may be larger than memory for text.

use crate::draws::Draws;
use crate::request::{ModelId, Request, Trace};
use std::io::{Read, Write};
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// A form of trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Ours: `arrived_s,model` and further columns.
    Own,
    /// Azure Functions 2019: a row for each function with its invocations in each minute of a day.
    AzureFunctions2019,
    /// Azure Functions 2021: a row for each invocation with its end and its duration.
    AzureFunctions2021,
    /// Azure LLM inference 2023 and 2024: `TIMESTAMP,ContextTokens,GeneratedTokens`.
    AzureLlm,
}

/// The names of the forms, in the order of [`Form`].
pub const FORMS: [&str; 4] =
    ["trainyard", "azure-functions-2019", "azure-functions-2021", "azure-llm"];
const ALL: [Form; 4] =
    [Form::Own, Form::AzureFunctions2019, Form::AzureFunctions2021, Form::AzureLlm];

/// The most requests of a trace: their numbers have 32 bits, and each takes some 50 bytes.
pub const REQUESTS_MAX: usize = 50_000_000;

impl Form {
    /// A form by its name.
    pub fn named(name: &str) -> Result<Form, InputError> {
        let found = FORMS.iter().position(|one| *one == name);
        found.map(|at| ALL[at]).ok_or_else(|| InputError::unknown(0, "format", name, FORMS))
    }

    /// The form that a first line belongs to, if any.
    pub fn of_heading(heading: &str) -> Option<Form> {
        let has = |name: &str| heading.split(',').any(|column| column.trim() == name);
        match () {
            () if has("arrived_s") => Some(Form::Own),
            () if has("HashFunction") => Some(Form::AzureFunctions2019),
            () if has("end_timestamp") => Some(Form::AzureFunctions2021),
            () if has("ContextTokens") => Some(Form::AzureLlm),
            () => None,
        }
    }
}

/// What a reader fills in where a trace says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Filling {
    /// Models that functions are dealt out to, one after the other.
    pub models: Vec<String>,
    /// How long a request has.
    pub slo: Span,
    /// The most tokens of an answer where a trace tells the true number alone.
    pub output_max: u32,
    /// The seed of moments within a minute.
    pub seed: u64,
}

/// Reads a trace.
pub fn read(form: Form, input: &mut dyn Read, filling: &Filling) -> Result<Trace, InputError> {
    let mut table = Table::new(input)?;
    let mut trace = match form {
        Form::Own => own(&mut table, filling),
        Form::AzureFunctions2019 => functions_2019(&mut table, filling),
        Form::AzureFunctions2021 => functions_2021(&mut table, filling),
        Form::AzureLlm => llm(&mut table, filling),
    }?;
    if trace.requests.is_empty() {
        return Err(InputError::missing(0, "requests", "a trace with one request at least"));
    }
    trace.sort();
    Ok(trace)
}

/// Writes a trace in our form.
pub fn write(trace: &Trace, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "arrived_s,model,slo_s,client,priority,prompt,output,output_max,prefix,prefix_tokens"
    )?;
    for (request, output) in trace.requests.iter().zip(&trace.outputs) {
        let slo = match request.deadline {
            Time::NEVER => String::new(),
            deadline => deadline.since(request.arrived).as_secs_f64().to_string(),
        };
        let Request { client, priority, prompt, output_max, prefix, prefix_tokens, .. } = request;
        let (arrived, model) =
            (request.arrived.as_secs_f64(), &trace.models[request.model.index()]);
        writeln!(
            out,
            "{arrived},{model},{slo},{client},{priority},{prompt},{output},{output_max},{prefix},{prefix_tokens}"
        )?;
    }
    Ok(())
}

/// Rows with named columns, one at a time.
struct Table<'a> {
    reader: csv::Reader<&'a mut dyn Read>,
    heading: Vec<String>,
    row: csv::StringRecord,
}

impl<'a> Table<'a> {
    fn new(input: &'a mut dyn Read) -> Result<Table<'a>, InputError> {
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(input);
        let heading = reader.headers().map_err(|error| broken(&error))?;
        let heading = heading.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned());
        Ok(Table { heading: heading.collect(), reader, row: csv::StringRecord::new() })
    }

    fn next(&mut self) -> Result<bool, InputError> {
        self.reader.read_record(&mut self.row).map_err(|error| broken(&error))
    }

    fn line(&self) -> u64 {
        self.row.position().map_or(0, csv::Position::line)
    }

    fn column(&self, name: &str) -> Result<usize, InputError> {
        let found = self.heading.iter().position(|one| one == name);
        found.ok_or_else(|| InputError::missing(1, name, "a column of that name"))
    }

    fn optional(&self, name: &str) -> Option<usize> {
        self.heading.iter().position(|one| one == name)
    }

    fn text(&self, at: usize) -> &str {
        self.row.get(at).unwrap_or("")
    }

    fn real(&self, at: usize, most: f64) -> Result<f64, InputError> {
        let text = self.text(at);
        let number = text.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
        number.ok_or_else(|| self.wrong(at, format!("a number from 0 to {most}")))
    }

    fn whole(&self, at: Option<usize>, most: u64, otherwise: u64) -> Result<u64, InputError> {
        let Some(at) = at.filter(|at| !self.text(*at).is_empty()) else { return Ok(otherwise) };
        let number = self.text(at).parse::<u64>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| self.wrong(at, format!("a whole number up to {most}")))
    }

    fn wrong(&self, at: usize, expected: String) -> InputError {
        let name = self.heading.get(at).map_or("column", String::as_str);
        match self.text(at) {
            "" => InputError::missing(self.line(), name, expected),
            text => InputError::wrong(self.line(), name, text, expected),
        }
    }
}

fn broken(error: &csv::Error) -> InputError {
    let line = error.position().map_or(0, csv::Position::line);
    InputError::wrong(
        line,
        "",
        &error.to_string(),
        "rows of text in UTF-8 with commas between columns",
    )
}

fn add(trace: &mut Trace, line: u64, (request, output): (Request, u32)) -> Result<(), InputError> {
    if trace.requests.len() >= REQUESTS_MAX {
        let expected = format!("{REQUESTS_MAX} requests at most; take a part of the trace");
        return Err(InputError::wrong(line, "requests", "more", expected));
    }
    trace.requests.push(request);
    trace.outputs.push(output);
    Ok(())
}

fn own(table: &mut Table<'_>, filling: &Filling) -> Result<Trace, InputError> {
    const COLUMNS: [&str; 10] = [
        "arrived_s",
        "model",
        "slo_s",
        "client",
        "priority",
        "prompt",
        "output",
        "output_max",
        "prefix",
        "prefix_tokens",
    ];
    if let Some(name) = table.heading.iter().find(|name| !COLUMNS.contains(&name.as_str())) {
        return Err(InputError::unknown(1, "column", name, COLUMNS));
    }
    let (arrived, model) = (table.column("arrived_s")?, table.column("model")?);
    let [slo, client, priority, prompt, output, output_max, prefix, prefix_tokens] = [
        "slo_s",
        "client",
        "priority",
        "prompt",
        "output",
        "output_max",
        "prefix",
        "prefix_tokens",
    ]
    .map(|name| table.optional(name));
    let mut trace = Trace::default();
    while table.next()? {
        let name = table.text(model);
        if name.is_empty() {
            return Err(table.wrong(model, "the name of a model".to_owned()));
        }
        let model = trace.model(name);
        let when = Time::from_secs_f64(table.real(arrived, 1e10)?);
        let slo = match slo.filter(|at| !table.text(*at).is_empty()) {
            Some(at) => Span::from_secs_f64(table.real(at, 1e10)?),
            None => filling.slo,
        };
        let mut request = Request::whole(model, when, slo);
        request.client = table.whole(client, u64::from(u32::MAX), 0)? as u32;
        request.priority = table.whole(priority, 255, 0)? as u8;
        request.prompt = table.whole(prompt, 1 << 22, 0)? as u32;
        let made = table.whole(output, 1 << 22, 0)? as u32;
        request.output_max = table.whole(output_max, 1 << 22, u64::from(made))? as u32;
        request.prefix = table.whole(prefix, u64::from(u32::MAX), 0)? as u32;
        request.prefix_tokens = table.whole(prefix_tokens, 1 << 22, 0)? as u32;
        if request.prefix_tokens > request.prompt {
            let at = prefix_tokens.unwrap_or(0);
            return Err(
                table.wrong(at, format!("at most the {} tokens of the prompt", request.prompt))
            );
        }
        add(&mut trace, table.line(), (request, made))?;
    }
    Ok(trace)
}

/// Models of functions: as many as there are, dealt out one after the other.
fn dealt(filling: &Filling) -> Result<Trace, InputError> {
    match filling.models.is_empty() {
        true => Err(InputError::missing(0, "models", "the models that functions stand for")),
        false => Ok(Trace { models: filling.models.clone(), ..Trace::default() }),
    }
}

fn functions_2019(table: &mut Table<'_>, filling: &Filling) -> Result<Trace, InputError> {
    table.column("HashFunction")?;
    let minutes: Vec<(usize, u32)> = (table.heading.iter().enumerate())
        .filter_map(|(at, name)| {
            Some((at, name.parse().ok().filter(|minute| (1..=1440).contains(minute))?))
        })
        .collect();
    if minutes.is_empty() {
        return Err(InputError::missing(
            1,
            "1",
            "columns `1` to `1440`, one for each minute of a day",
        ));
    }
    let mut draws = Draws::new(filling.seed, 31);
    let mut trace = dealt(filling)?;
    let mut function = 0u32;
    while table.next()? {
        let model = ModelId(function % filling.models.len() as u32);
        for (at, minute) in &minutes {
            for _ in 0..table.whole(Some(*at), 10_000_000, 0)? {
                // The trace counts by minute; where in it a request came is drawn.
                let second = 60.0 * (f64::from(*minute - 1) + draws.unit());
                let mut request = Request::whole(model, Time::from_secs_f64(second), filling.slo);
                request.client = function;
                add(&mut trace, table.line(), (request, 0))?;
            }
        }
        function += 1;
    }
    Ok(trace)
}

fn functions_2021(table: &mut Table<'_>, filling: &Filling) -> Result<Trace, InputError> {
    let (app, func) = (table.column("app")?, table.column("func")?);
    let (end, duration) = (table.column("end_timestamp")?, table.column("duration")?);
    let mut known = std::collections::BTreeMap::new();
    let mut trace = dealt(filling)?;
    while table.next()? {
        let name = (table.text(app).to_owned(), table.text(func).to_owned());
        let next = known.len() as u32;
        let function = *known.entry(name).or_insert(next);
        // An invocation came as long before its end as it took.
        let arrived = (table.real(end, 1e10)? - table.real(duration, 1e10)?).max(0.0);
        let model = ModelId(function % filling.models.len() as u32);
        let mut request = Request::whole(model, Time::from_secs_f64(arrived), filling.slo);
        request.client = function;
        add(&mut trace, table.line(), (request, 0))?;
    }
    Ok(trace)
}

fn llm(table: &mut Table<'_>, filling: &Filling) -> Result<Trace, InputError> {
    let when = table.column("TIMESTAMP")?;
    let (context, generated) = (table.column("ContextTokens")?, table.column("GeneratedTokens")?);
    let model =
        filling.models.first().cloned().unwrap_or_else(|| crate::zoo::llm_8b().name.clone());
    let mut trace = Trace { models: vec![model], ..Trace::default() };
    let mut first: Option<f64> = None;
    while table.next()? {
        let seconds = timestamp(table.text(when));
        let expected = || "a moment such as 2023-11-16 18:15:46.6805900".to_owned();
        let seconds = seconds.ok_or_else(|| table.wrong(when, expected()))?;
        // Rows are in order of time; one that is earlier than the first counts as coming with it.
        let start = *first.get_or_insert(seconds);
        let arrived = Time::from_secs_f64((seconds - start).max(0.0));
        let mut request = Request::whole(ModelId(0), arrived, filling.slo);
        request.prompt = (table.whole(Some(context), 1 << 22, 1)? as u32).max(1);
        let output = (table.whole(Some(generated), 1 << 22, 1)? as u32).max(1);
        request.output_max = filling.output_max.max(output);
        add(&mut trace, table.line(), (request, output))?;
    }
    Ok(trace)
}

/// Seconds since the year 1970 of `2023-11-16 18:15:46.6805900`, with or without an offset from UTC.
fn timestamp(text: &str) -> Option<f64> {
    let (date, clock) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let end = clock.find(['+', '-', 'Z']).unwrap_or(clock.len());
    let mut parts = clock[..end].split(':').map(str::parse::<f64>);
    let (hour, minute, second) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let is_sound = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && [hour, minute, second].iter().all(|one| (0.0..61.0).contains(one));
    if !is_sound {
        return None;
    }
    // Days since 1970 with years that begin in March, so that a leap day is the last of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling() -> Filling {
        let models = vec!["a".to_owned(), "b".to_owned()];
        Filling { models, slo: Span::secs(1), output_max: 512, seed: 1 }
    }

    fn from(form: Form, text: &str) -> Result<Trace, InputError> {
        read(form, &mut text.as_bytes(), &filling())
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = "arrived_s,model,slo_s,priority,prompt,output,prefix,prefix_tokens\n0.5,x,0.1,1,30,7,2,20\n0.25,y,,,,,,\n";
        let trace = from(Form::Own, text).unwrap();
        assert_eq!(trace.requests[0].arrived, Time(250_000));
        assert_eq!((trace.requests[1].prompt, trace.outputs[1]), (30, 7));
        let mut out = Vec::new();
        write(&trace, &mut out).unwrap();
        let again = read(Form::Own, &mut out.as_slice(), &filling()).unwrap();
        assert_eq!(again.requests.len(), 2);
        assert_eq!(again.requests[1].deadline, trace.requests[1].deadline);
        assert_eq!(again.outputs, trace.outputs);
    }

    #[test]
    fn azures_forms_are_read_by_their_columns() {
        let text =
            "HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,http,2,0,1\no,a,g,timer,0,3,0\n";
        let trace = from(Form::AzureFunctions2019, text).unwrap();
        let count = |model, minute| {
            let in_it =
                |one: &&Request| one.model.0 == model && one.arrived.0 / 60_000_000 == minute;
            trace.requests.iter().filter(in_it).count()
        };
        assert_eq!([count(0, 0), count(0, 2), count(1, 1), trace.requests.len()], [2, 1, 3, 6]);
        let text = "app,func,end_timestamp,duration\na,f,10.5,0.5\na,g,10.25,0.25\na,f,3,1\n";
        let trace = from(Form::AzureFunctions2021, text).unwrap();
        let seen: Vec<(u64, u32)> =
            trace.requests.iter().map(|one| (one.arrived.0, one.model.0)).collect();
        assert_eq!(seen, [(2_000_000, 0), (10_000_000, 0), (10_000_000, 1)]);
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.0000000,396,109\n";
        let trace = from(Form::AzureLlm, text).unwrap();
        assert_eq!(trace.requests[1].arrived, Time(1_500_000));
        assert_eq!((trace.requests[1].prompt, trace.outputs[1]), (396, 109));
    }

    #[test]
    fn faults_name_line_column_and_what_was_expected() {
        let fault = |form, text: &str| from(form, text).unwrap_err().to_string();
        assert!(fault(Form::Own, "arrived_s,modle\n1,x\n").contains("did you mean `model`"));
        assert!(
            fault(Form::Own, "arrived_s,model\n1,x\n-2,x\n")
                .contains("line 3: `arrived_s` cannot be `-2`")
        );
        assert!(fault(Form::Own, "arrived_s,model\n1,\n").contains("line 2: `model` is missing"));
        assert!(
            fault(Form::AzureLlm, "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n")
                .contains("2023-11-16")
        );
        assert!(fault(Form::AzureLlm, "a,b\n1,2\n").contains("`TIMESTAMP` is missing"));
        assert!(fault(Form::Own, "arrived_s,model\n").contains("one request at least"));
        assert!(Form::named("azure-lm").unwrap_err().to_string().contains("azure-llm"));
    }

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(timestamp("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(timestamp("2024-03-01T00:00:00.5Z"), Some(1_709_251_200.5));
        assert_eq!(timestamp("2024-13-01 00:00:00"), None);
        assert_eq!(timestamp("9000000000000000000-01-01 00:00:00"), None);
    }
}
