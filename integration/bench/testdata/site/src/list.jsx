import { useQuery } from "@tanstack/react-query";
import dayjs from "dayjs";
import Fuse from "fuse.js";
import { useState } from "react";
import { Link } from "react-router-dom";
import { useNotes } from "./notes.js";

export function List() {
  const [wanted, setWanted] = useState("");
  const notes = useNotes((state) => state.notes);
  const found = useQuery({
    queryKey: ["notes", notes, wanted],
    queryFn: async () => {
      if (!wanted) return notes;
      return new Fuse(notes, { keys: ["title", "text"] }).search(wanted).map((hit) => hit.item);
    },
  });
  return (
    <section className="py-4">
      <input className="w-full rounded border p-2" value={wanted} onChange={(event) => setWanted(event.target.value)} />
      <ul className="divide-y">
        {found.data?.map((note) => (
          <li key={note.id} className="py-2">
            <Link to={`/notes/${note.id}`} className="font-medium underline">{note.title}</Link>
            <time className="ml-2 text-gray-500">{dayjs(note.at).format("D MMM YYYY")}</time>
          </li>
        ))}
      </ul>
    </section>
  );
}
