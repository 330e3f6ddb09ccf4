//! Which instruction set the kernels use. The choice changes speed, never a result.

/// An instruction set this machine has, and kernels exist for. Made only by [`Isa::detect`] and [`Isa::available`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// What an [`Isa`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Plain Rust, on any machine.
    Scalar,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Isa {
    /// The best this machine runs.
    #[must_use]
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self(Level::Scalar))
    }

    /// All this machine runs, slowest first.
    #[must_use]
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx512 {
                return &[Self(Level::Scalar), Self(Level::Avx2), Self(Level::Avx512)];
            }
            if avx2 {
                return &[Self(Level::Scalar), Self(Level::Avx2)];
            }
        }
        &[Self(Level::Scalar)]
    }

    pub(super) fn level(self) -> Level {
        self.0
    }

    /// The name people read.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512-vnni",
        }
    }
}

/// Compiles a plain Rust body once for each instruction set and dispatches to it.
///
/// The body is `inline(always)`, so that it is vectorized with the features of the function it is inlined into. Rust never
/// fuses or reorders float operations, so all versions give the same bits.
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:path;) => {
        $(#[$meta])*
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls code compiled for features found at run time"))]
        $vis fn $name(isa: $crate::kernels::Isa, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,f16c")]
                fn avx2($($arg: $type),*) $(-> $result)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $result)? {
                    $body($($arg),*)
                }
                match isa.level() {
                    $crate::kernels::isa::Level::Scalar => $body($($arg),*),
                    // SAFETY: this value of `Isa` is only made where the machine has these features.
                    $crate::kernels::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernels::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                let _ = isa;
                $body($($arg),*)
            }
        }
    };
}
pub(super) use dispatched;
