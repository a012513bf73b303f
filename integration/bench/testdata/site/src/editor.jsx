import { marked } from "marked";
import { useForm } from "react-hook-form";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router-dom";
import { z } from "zod";
import { useNotes } from "./notes.js";

const shape = z.object({ title: z.string().min(1), text: z.string().max(10000) });

export function Editor() {
  const { t } = useTranslation();
  const { register, handleSubmit, watch } = useForm({ defaultValues: { title: "", text: "" } });
  const add = useNotes((state) => state.add);
  const navigate = useNavigate();
  const save = handleSubmit((values) => navigate(`/notes/${add(shape.parse(values))}`));
  return (
    <form onSubmit={save} className="grid gap-3 py-4">
      <input className="rounded border p-2" {...register("title")} />
      <textarea className="h-48 rounded border p-2 font-mono" {...register("text")} />
      <div className="text-sm text-gray-600" dangerouslySetInnerHTML={{ __html: marked.parse(watch("text")) }} />
      <button className="rounded bg-blue-700 px-4 py-2 text-white hover:bg-blue-800">{t("save")}</button>
    </form>
  );
}
