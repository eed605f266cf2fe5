//! The probe guest: a 64 KiB firmware image of our own that is the whole machine's software.
//!
//! It starts at the reset vector and climbs real → protected → long mode (page tables in low RAM), runs
//! `lock cmpxchg16b` (where software virtualization that interprets stock guests dies), then a bounded arithmetic
//! loop whose length an interpreter cannot manage before the deadline, and writes each step to the serial port:
//!
//! `R` real mode · `P` protected mode · `L` long mode · `X` cmpxchg16b · 8 bytes, the loop's result · `D` done
//!
//! Then it triple-faults, which ends a QEMU started with `-no-reboot`. Seed and loop count are patched into the
//! image, so a right answer can only come from a guest that really ran. No device beyond the serial port is
//! needed, so every QEMU build that can run `microvm` can run it.
#![allow(unsafe_code)]

use std::arch::global_asm;

/// Size of the image: one real-mode segment, so that code offsets are the same in every view of the ROM.
pub(crate) const ROM_BYTES: usize = 0x1_0000;
/// Length of a complete reply: four stages, eight bytes of result, the end mark.
pub(crate) const REPLY_BYTES: usize = 13;
/// Changes whenever the image or the meaning of its reply changes: cached probes of another version are void.
pub(crate) const ROM_VERSION: u32 = 1;

/// Four instructions each: ~35 ms on hardware, ~0.1 s under TCG, 25 s at the 3.2 MIPS of an interpreting host.
const ITERATIONS: u64 = 20_000_000;
const ITERATIONS_OFFSET: usize = 0xf008;
const SEED_OFFSET: usize = 0xf010;
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

global_asm!(
    r#"
    .pushsection .rodata.pandastack_probe_rom, "a", @progbits
    .balign 16
    .globl pandastack_probe_rom
    .hidden pandastack_probe_rom
pandastack_probe_rom:
    .fill 0xf000, 1, 0
    .ascii "PANDAROM"
    .quad 0                                 # patched: iterations
    .quad 0                                 # patched: seed
.Lpanda_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff                # 0x08 32-bit code
    .quad 0x00cf93000000ffff                # 0x10 data
    .quad 0x00af9b000000ffff                # 0x18 64-bit code
.Lpanda_gdt_pointer:
    .word 31
    .long 0xf0000 + (.Lpanda_gdt - pandastack_probe_rom)

    # Say the byte \letter: wait for the transmitter, then send. Clobbers eax and edx.
    .macro PANDA_SAY letter
    movw $0x3fd, %dx
7:  inb %dx, %al
    testb $0x20, %al
    jz 7b
    movb \letter, %al
    movw $0x3f8, %dx
    outb %al, %dx
    .endm

    .code16
.Lpanda_real:
    cli
    cld
    movw $0xf000, %ax
    movw %ax, %ds
    PANDA_SAY $'R'
    lgdtl .Lpanda_gdt_pointer - pandastack_probe_rom
    movl %cr0, %eax
    andl $0x9fffffff, %eax                  # caches on
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x08, $(0xf0000 + (.Lpanda_protected - pandastack_probe_rom))

    .code32
.Lpanda_protected:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    PANDA_SAY $'P'
    movl $0x1000, %edi                      # page tables at 0x1000..0x4000 map the first 2 MiB onto itself
    xorl %eax, %eax
    movl $3072, %ecx
    rep stosl
    movl $0x2003, 0x1000
    movl $0x3003, 0x2000
    movl $0x83, 0x3000
    movl $0x1000, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax                         # PAE
    movl %eax, %cr4
    movl $0xc0000080, %ecx                  # EFER.LME
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000000, %eax                   # paging
    movl %eax, %cr0
    ljmpl $0x18, $(0xf0000 + (.Lpanda_long - pandastack_probe_rom))

    .code64
.Lpanda_long:
    PANDA_SAY $'L'
    movl $0x5000, %edi
    xorl %eax, %eax
    xorl %edx, %edx
    movq %rax, (%rdi)
    movq %rax, 8(%rdi)
    movl $0xff000, %r8d
    movq 0x10(%r8), %rbx
    movq %rbx, %rcx
    notq %rcx
    lock cmpxchg16b (%rdi)                  # 0:0 becomes seed:!seed
    jnz .Lpanda_halt
    movq (%rdi), %rax
    notq %rax
    cmpq %rax, 8(%rdi)
    jne .Lpanda_halt
    PANDA_SAY $'X'
    movq (%rdi), %rax
    movq 8(%r8), %rcx
    movabsq $6364136223846793005, %rbx
    movabsq $1442695040888963407, %rsi
2:  imulq %rbx, %rax
    addq %rsi, %rax
    decq %rcx
    jnz 2b
    movq %rax, %rbx
    movl $8, %ecx
3:  PANDA_SAY %bl
    shrq $8, %rbx
    decl %ecx
    jnz 3b
    PANDA_SAY $'D'
    lidt 0x4000                             # an empty table: the next exception is a triple fault
    ud2
.Lpanda_halt:
    cli
    hlt
    jmp .Lpanda_halt

    .org pandastack_probe_rom + 0xfff0, 0   # the reset vector
    .code16
    ljmpw $0xf000, $(.Lpanda_real - pandastack_probe_rom)
    .org pandastack_probe_rom + 0x10000, 0
    .code64
    .purgem PANDA_SAY
    .popsection
    "#,
    options(att_syntax)
);

unsafe extern "C" {
    #[link_name = "pandastack_probe_rom"]
    static ROM: [u8; ROM_BYTES];
}

/// One probe guest with its own seed.
pub(crate) struct Rom {
    /// The firmware image for `-bios`.
    pub(crate) image: Vec<u8>,
    result: u64,
}

/// What a guest has said so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Right so far: this many bytes of [`REPLY_BYTES`].
    Partial(usize),
    /// All of it, and right.
    Complete,
    /// Not what our guest would say.
    Wrong,
}

impl Rom {
    /// The image, patched for `seed`, and the answer it must give.
    pub(crate) fn new(seed: u64) -> Rom {
        // SAFETY: the assembly above defines the symbol as exactly ROM_BYTES (`.org` fails the build otherwise)
        // of read-only data that nothing ever writes.
        let mut image = unsafe { ROM }.to_vec();
        image[ITERATIONS_OFFSET..ITERATIONS_OFFSET + 8].copy_from_slice(&ITERATIONS.to_le_bytes());
        image[SEED_OFFSET..SEED_OFFSET + 8].copy_from_slice(&seed.to_le_bytes());
        Rom { image, result: iterate(seed, ITERATIONS) }
    }

    /// The complete right answer.
    pub(crate) fn expected(&self) -> [u8; REPLY_BYTES] {
        let mut reply = *b"RPLX________D";
        reply[4..12].copy_from_slice(&self.result.to_le_bytes());
        reply
    }

    /// Judges what came out of the serial port so far.
    pub(crate) fn judge(&self, said: &[u8]) -> Reply {
        let expected = self.expected();
        if said.len() >= REPLY_BYTES && said[..REPLY_BYTES] == expected {
            return Reply::Complete;
        }
        if expected.starts_with(said) { Reply::Partial(said.len()) } else { Reply::Wrong }
    }
}

/// What a guest that said `bytes` right bytes of its reply had reached, for people.
pub(crate) fn stage(bytes: usize) -> &'static str {
    match bytes {
        0 => "nothing: no instruction of the guest is known to have run",
        1 => "real mode",
        2 => "protected mode",
        3 => "long mode, but not past `lock cmpxchg16b`",
        4 => "the arithmetic loop, but not its end",
        _ => "the end of the loop, but its answer was cut short",
    }
}

/// `x → x·MULTIPLIER + INCREMENT`, `count` times, by squaring the map instead of walking it.
fn iterate(seed: u64, mut count: u64) -> u64 {
    let (mut factor, mut term) = (MULTIPLIER, INCREMENT);
    let mut value = seed;
    while count > 0 {
        if count & 1 == 1 {
            value = value.wrapping_mul(factor).wrapping_add(term);
        }
        term = term.wrapping_mul(factor).wrapping_add(term);
        factor = factor.wrapping_mul(factor);
        count >>= 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_a_firmware_with_a_reset_vector() {
        let rom = Rom::new(1);
        assert_eq!(rom.image.len(), ROM_BYTES);
        assert_eq!(&rom.image[0xf000..0xf008], b"PANDAROM");
        assert_eq!(rom.image[0xfff0], 0xea, "a far jump");
        assert_eq!(&rom.image[0xfff3..0xfff5], &[0x00, 0xf0], "into the BIOS segment");
    }

    #[test]
    fn jumping_ahead_is_the_same_as_walking() {
        for count in [0, 1, 2, 3, 7, 1000, 4097] {
            let walked = (0..count).fold(99u64, |x, _| x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT));
            assert_eq!(iterate(99, count), walked, "{count} steps");
        }
    }

    #[test]
    fn replies_are_judged() {
        let rom = Rom::new(7);
        let right = rom.expected();
        assert_eq!(rom.judge(b""), Reply::Partial(0));
        assert_eq!(rom.judge(&right[..4]), Reply::Partial(4));
        assert_eq!(rom.judge(&right), Reply::Complete);
        let mut noisy = right.to_vec();
        noisy.extend_from_slice(b"more");
        assert_eq!(rom.judge(&noisy), Reply::Complete);
        assert_eq!(rom.judge(b"SeaBIOS (version"), Reply::Wrong);
        assert_eq!(rom.judge(&Rom::new(8).expected()), Reply::Wrong, "another seed's answer");
    }
}
