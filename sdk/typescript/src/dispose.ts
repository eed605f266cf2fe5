/** Lets `await using` work where the runtime does not know its symbol yet (Node before 18.18). */

if (typeof Symbol.asyncDispose !== "symbol") {
  Object.defineProperty(Symbol, "asyncDispose", { value: Symbol.for("Symbol.asyncDispose") });
}

export {};
