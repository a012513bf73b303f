import { produce } from "immer";
import { create } from "zustand";

export const useNotes = create((set) => ({
  notes: [],
  add: (note) => {
    const id = crypto.randomUUID();
    set(produce((state) => void state.notes.push({ ...note, id, at: Date.now() })));
    return id;
  },
}));
