//! tmp
use std::sync::Arc; use weir_model::*;
fn cpu() -> f64 { let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime); t.tv_sec as f64 + t.tv_nsec as f64*1e-9 }
fn main() {
    let path = std::env::args().nth(1).expect("path");
    let g = Arc::new(gguf::Gguf::open(path.as_ref()).unwrap());
    let th = Threads::new(std::env::args().nth(2).map_or(1, |v| v.parse().unwrap())).unwrap();
    let isa = match std::env::args().nth(3).as_deref() { Some("avx2") => kernels::Isa::available()[1], Some("scalar") => kernels::Isa::available()[0], _ => kernels::Isa::detect() };
    let t = std::time::Instant::now();
    let mut st = Stage::load_with(&g, StageSpec::whole(18), &th, isa).unwrap();
    println!("load {:?}", t.elapsed());
    let d = st.arch().width; let mut logits = Vec::new();
    for round in 0..6 {
        let n = if round < 3 { 64 } else { 512 };
        let p: Vec<u32> = (0..n as u32).map(|i| 1000 + i*7).collect();
        st.open(1, 2048).unwrap();
        let rows: Vec<Row> = (0..n).map(|i| Row { sequence: 1, position: i }).collect();
        let (t, c) = (std::time::Instant::now(), cpu());
        let mut h = st.embed(&p).unwrap(); st.forward(&rows, &mut h).unwrap();
        let (w1, c1) = (t.elapsed().as_secs_f64(), cpu() - c);
        let mut h = h[h.len()-d..].to_vec();
        let (t, c) = (std::time::Instant::now(), cpu());
        for i in 0..64 {
            st.head(&h, &mut logits).unwrap();
            let best = kernels::argmax(isa, &logits) as u32;
            h = st.embed(&[best]).unwrap();
            st.forward(&[Row { sequence: 1, position: n + i }], &mut h).unwrap();
        }
        let (w2, c2) = (t.elapsed().as_secs_f64(), cpu() - c);
        println!("prefill {n}: {:.0} tok/s wall, {:.0} tok/cpu-s; decode {:.1} tok/s wall, cpu {:.2} ms/tok", n as f64/w1, n as f64/c1, 64.0/w2, c2/64.0*1e3);
        st.close(1);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS") || l.starts_with("Rss")).collect::<Vec<_>>().join(" "));
}
